"""Sources from a repository: the commit that was named, whole, and nothing that it would like to do to us."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.runtimed_git import GitServer, commit, commit_tree, git, serving_git
from tests.runtimed_stub import until

from kruntimes.common.errors import NotReady, Terminal
from kruntimes.runtimed import repository, source, tree
from kruntimes.runtimed.source import Home

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(90)]


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """The repository that is served as /app."""
    return tmp_path / "served" / "app"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "workspace").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return Home(tmp_path / "workspace", "pod-1")


@pytest_asyncio.fixture(loop_scope="session")
async def server(upstream: Path) -> AsyncIterator[GitServer]:
    upstream.parent.mkdir(parents=True)
    async with serving_git(upstream.parent) as serving:
        yield serving


async def fetch(home: Home, url: str, sha: str | None, *, attempt: int = 1) -> Path:
    try:
        return await repository.materialise(home, uid="u", attempt=attempt, url=url, commit=sha)
    finally:
        assert os.listdir(tempfile.gettempdir()) == [], "nothing of git is left"


async def test_the_named_commit_and_not_the_newest(home: Home, upstream: Path, server: GitServer) -> None:
    sha = commit(
        upstream,
        {"pkg/handler.py": b"x = 1\n", "run": b"#!/bin/sh\n", "gr\u00fc\u00dfe.txt": b"", "big": os.urandom(300_000)},
        links={"pkg/link": "../run"},
    )
    commit(upstream, {"pkg/handler.py": b"x = 2\n"})
    folder = await fetch(home, f"{server.url}/app", sha)
    assert folder == home.working_dir(uid="u", attempt=1)
    assert (folder / "pkg" / "handler.py").read_text() == "x = 1\n"
    assert (folder / "gr\u00fc\u00dfe.txt").read_bytes() == b""
    assert (folder / "big").stat().st_size == 300_000
    assert os.access(folder / "run", os.X_OK)
    assert not os.access(folder / "pkg" / "handler.py", os.X_OK)
    assert os.readlink(folder / "pkg" / "link") == "../run"
    assert not (folder / ".git").exists()
    asked = len(server.asked)
    (folder / "made-by-the-program").touch()
    assert await fetch(home, f"{server.url}/app", sha) == folder
    assert (len(server.asked), (folder / "made-by-the-program").exists()) == (asked, True), "what is there is whole"


async def test_only_that_commit_is_fetched(home: Home, upstream: Path, server: GitServer) -> None:
    commit(upstream, {"history": os.urandom(3_000_000)})
    parent = git(upstream, "rev-parse", "main")
    tip = git(upstream, "commit-tree", git(upstream, "mktree", data=b""), "-p", parent, "-m", "empty")
    before = repository.MAX_PACK_BYTES
    try:
        repository.MAX_PACK_BYTES = 1_000_000
        assert list((await fetch(home, f"{server.url}/app", tip)).iterdir()) == []
        with pytest.raises(Terminal, match="bytes, packed"):
            await fetch(home, f"{server.url}/app", parent, attempt=2)
    finally:
        repository.MAX_PACK_BYTES = before
    source.remove(home, uid="u", attempt=1)
    assert source.found(home) == frozenset()


async def test_refusals_say_what_is_wrong_and_never_the_address(home: Home, upstream: Path, server: GitServer) -> None:
    sha = commit(upstream, {"a": b"1"})
    secret = server.url.replace("http://", "http://user:s3cret@")
    for url, asked, message in (
        (f"{secret}/private/x", sha, "asks for credentials"),
        (f"{secret}/none", sha, "no repository at that address"),
        (f"{secret}/app", "0" * 40, "no such commit"),
    ):
        with pytest.raises(Terminal, match=message) as refused:
            await fetch(home, url, asked)
        assert "s3cret" not in str(refused.value)
        assert "127.0.0.1" not in str(refused.value)
    with pytest.raises(NotReady, match="git fetch failed") as unreachable:
        await fetch(home, "http://user:s3cret@127.0.0.1:9/app", sha)
    assert "s3cret" not in str(unreachable.value)
    assert "127.0.0.1:9" not in str(unreachable.value)
    assert source.found(home) == frozenset()


@pytest.mark.parametrize(
    ("url", "sha", "message"),
    [
        ("https://example.org/x", "main", "whole hash"),
        ("https://example.org/x", "abc123", "whole hash"),
        ("https://example.org/x", "A" * 40, "whole hash"),
        ("http://example.org/x", None, "needs a commitSHA"),
        ("file:///etc", "0" * 40, "must begin with https://"),
        ("git://example.org/x", "0" * 40, "must begin with https://"),
        ("ssh://git@example.org/x", "0" * 40, "must begin with https://"),
        ("ext::sh -c id", "0" * 40, "not a URL"),
        ("https://", None, "not a URL"),
        ("https://-oProxyCommand=id/x", None, "not a URL"),
        ("https://[::1/x", None, "not a URL"),
        ("https://example.org:port/x", None, "not a URL"),
        ("https://example.org/\nx", None, "not a URL"),
    ],
)
async def test_addresses_that_are_never_asked(url: str, sha: str | None, message: str) -> None:
    with pytest.raises(Terminal, match=message) as refused:
        repository.checked_address(url, sha)
    assert "example.org" not in str(refused.value)


async def test_a_tree_with_two_entries_of_one_name_writes_nothing_elsewhere(
    home: Home, upstream: Path, server: GitServer, tmp_path: Path
) -> None:
    commit(upstream, {"x": b"1"})
    blob = git(upstream, "hash-object", "-w", "--stdin", data=str(tmp_path).encode())
    inner = git(upstream, "mktree", data=f"100644 blob {blob}\tescaped\n".encode())
    raw = b"".join(mode + b" a\0" + bytes.fromhex(name) for mode, name in ((b"120000", blob), (b"40000", inner)))
    evil = git(upstream, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=raw)
    sha = commit_tree(upstream, evil)
    with pytest.raises((Terminal, NotReady)):
        await fetch(home, f"{server.url}/app", sha)
    assert not (tmp_path / "escaped").exists()
    assert not home.working_dir(uid="u", attempt=1).exists()


async def test_too_many_bytes_write_nothing(
    home: Home, upstream: Path, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "MAX_TREE_BYTES", 10)
    sha = commit(upstream, {"a": b"x" * 11})
    with pytest.raises(Terminal, match="more than 10 bytes"):
        await fetch(home, f"{server.url}/app", sha)
    assert source.found(home) == frozenset()


async def test_cancelled_it_leaves_no_process(home: Home, server: GitServer) -> None:
    fetching = asyncio.ensure_future(fetch(home, f"{server.url}/slow/x", "0" * 40))
    await until(lambda: bool(server.asked), seconds=30)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert git_processes(server.url) == 0


async def test_a_server_that_hangs_is_given_up(home: Home, server: GitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "FETCH_SECONDS", 1.0)
    with pytest.raises(NotReady, match="took more than 1 s"):
        await fetch(home, f"{server.url}/slow/x", "0" * 40)


async def test_without_git_it_is_said(home: Home, server: GitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Terminal, match="git is not installed"):
        await fetch(home, f"{server.url}/app", "0" * 40)


def git_processes(url: str) -> int:
    """How many processes have *url* in their environment or arguments."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        if folder.name == str(os.getpid()):
            continue
        try:
            found += url.encode() in (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue
    return found
