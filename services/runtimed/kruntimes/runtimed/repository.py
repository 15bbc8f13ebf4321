"""A source from a repository: one commit, fetched shallowly by git, verified, and written by ourselves (design §4).

git only moves objects: it has no configuration but what stands here, no hooks, no filters, no prompts, no checkout,
and works in a folder that user code does not share. The files are written as all sources are (`source`), from what
`tree` has allowed. The address may hold credentials: it is on no command line, and in no log, error or status.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from kruntimes.common.errors import NotReady, Terminal
from kruntimes.runtimed import checkout, tree
from kruntimes.runtimed.source import Home

FETCH_SECONDS = 45.0
"""One fetch, within the minute that a preparation may take in all."""
LOCAL_SECONDS = 20.0
"""A git command that only reads what was fetched."""
MAX_PACK_BYTES = 2 * tree.MAX_TREE_BYTES
"""What git may write into one file, compressed; the tree itself is measured before it is written."""
MAX_LISTING_BYTES = 8 * 1024 * 1024
"""What git may print: a listing of all files that are allowed, with paths of 700 bytes."""
READ_BYTES = 64 * 1024
MAX_WORDS = 300
"""Of git's own words this many characters are passed on."""

_FETCH = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-gc")
_FULL = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_ADDRESS = re.compile(r"\S*://\S*|'[^']*'")
_PASSED = ("PATH", "https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE")
"""Of our own environment git gets these, and of ours alone: the token of the Pod is a file that it is not told of."""
_BOUNDED = (
    "import os, resource, sys; n = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)
_REFUSALS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"not our ref|unadvertised object|couldn't find remote ref|no such remote ref", re.I),
     "the repository has no such commit, or does not give it out by its hash"),
    (re.compile(r"Authentication failed|could not read (Username|Password)|error: 40[13]\b", re.I),
     "the repository asks for credentials, or refuses those that it got"),
    (re.compile(r"error: 404\b|repository .* not found", re.I), "there is no repository at that address"),
    (re.compile(r"certificate", re.I), "the repository's certificate is not trusted"),
    (re.compile(r"File too large|file size limit", re.I), f"the commit has more than {MAX_PACK_BYTES} bytes, packed"),
    (re.compile(r"transport '.*' not allowed", re.I), "the repository leads to an address that is not allowed"),
)  # fmt: skip
"""What git says where a repeat cannot help."""


def checked_address(url: str, commit: str | None) -> str:
    """*url*, where it may be fetched from. Raises Terminal with a sentence that does not hold it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise Terminal("repoURL is not a URL") from None
    if not url.isprintable() or " " in url:
        raise Terminal("repoURL is not a URL")
    if parts.scheme not in ("http", "https"):
        raise Terminal("repoURL must begin with https://, or with http:// and name a commitSHA")
    if not host or host.startswith("-"):
        raise Terminal("repoURL is not a URL")
    if commit is not None and _FULL.fullmatch(commit) is None:
        raise Terminal("commitSHA must be the whole hash of a commit, 40 or 64 hexadecimal digits in lower case")
    if parts.scheme == "http" and commit is None:
        raise Terminal("a repoURL with http:// needs a commitSHA, since nothing else says what comes")
    return url


async def materialise(home: Home, *, uid: str, attempt: int, url: str, commit: str | None) -> Path:
    """Writes the commit into the folder of the epoch and returns it; a folder that is there already is whole.

    commit: the newest of the repository's own branch where None. Raises Terminal where it can never be had, NotReady
    where it cannot now. Cancelled, it leaves no process.
    """
    address = checked_address(url, commit)
    folder = home.working_dir(uid=uid, attempt=attempt)
    if await asyncio.to_thread(checkout.is_there, home, uid=uid, attempt=attempt):
        return folder
    if shutil.which("git") is None:
        raise Terminal("git is not installed in runtimed's image, so no repository can be fetched")
    scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="kruntimes-git-"))
    try:
        environment = _environment(scratch, address)
        await _git(scratch, environment, "init", "--quiet", "--bare", ".", seconds=LOCAL_SECONDS)
        await _git(scratch, environment, *_FETCH, "origin", commit or "HEAD", seconds=FETCH_SECONDS)
        got = await _git(scratch, environment, "rev-parse", "--verify", "FETCH_HEAD^{commit}", seconds=LOCAL_SECONDS)
        if commit is not None and got.decode().strip() != commit:
            raise Terminal("the repository gave another commit than commitSHA names")
        listing = await _git(
            scratch, environment, "ls-tree", "-r", "-z", "-l", "--full-tree", "FETCH_HEAD", seconds=LOCAL_SECONDS
        )
        await asyncio.to_thread(_write, home, uid, attempt, scratch, environment, tree.entries(listing))
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True))
    return folder


def _environment(scratch: Path, address: str) -> Mapping[str, str]:
    config = {
        "remote.origin.url": address,
        "core.hooksPath": os.devnull,
        "core.fsmonitor": "false",
        "fetch.fsckObjects": "true",
        "fetch.unpackLimit": "1",
        "gc.auto": "0",
        "http.lowSpeedLimit": "1",
        "http.lowSpeedTime": "20",
        "protocol.allow": "never",
        "protocol.https.allow": "always",
        "protocol.http.allow": "always",
    }
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    environment |= {
        "HOME": str(scratch),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_CONFIG_COUNT": str(len(config)),
    }
    for number, (key, value) in enumerate(config.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment


async def _git(scratch: Path, environment: Mapping[str, str], *arguments: str, seconds: float) -> bytes:
    """What one git command prints. Raises Terminal or NotReady where it fails; in the end no process is left."""
    bounded = (sys.executable, "-I", "-S", "-c", _BOUNDED, str(MAX_PACK_BYTES))
    process = await asyncio.create_subprocess_exec(
        *bounded, "git", *arguments, cwd=scratch, env=environment, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(seconds):
            output, errors = await asyncio.gather(_read(process.stdout), _read(process.stderr))
            await process.wait()
    except TimeoutError:
        raise NotReady(f"git {arguments[0]} took more than {seconds:.0f} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    if process.returncode:
        raise _refused(arguments[0], errors.decode("utf-8", "replace"))
    return output


async def _read(stream: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    left = MAX_LISTING_BYTES
    while part := await stream.read(READ_BYTES):
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise Terminal(f"the repository has more than {tree.MAX_FILES} files")
    return b"".join(parts)


def _refused(command: str, words: str) -> Terminal | NotReady:
    for pattern, meaning in _REFUSALS:
        if pattern.search(words):
            return Terminal(meaning)
    lines = [line for line in words.splitlines() if line.startswith(("fatal:", "error:"))]
    said = _ADDRESS.sub("…", lines[-1] if lines else "no reason was given")
    return NotReady(f"git {command} failed: {said[:MAX_WORDS]}")


def _write(
    home: Home, uid: str, attempt: int, scratch: Path, environment: Mapping[str, str], entries: list[tree.Entry]
) -> None:
    """Blocking: reads each object from git and writes it; the folder appears whole or not at all."""
    with (
        checkout.new_tree(home, uid=uid, attempt=attempt) as writer,
        subprocess.Popen(
            ["git", "cat-file", "--batch"], cwd=scratch, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as objects,
    ):  # fmt: skip
        assert objects.stdin is not None
        assert objects.stdout is not None
        for entry in entries:
            objects.stdin.write(f"{entry.object}\n".encode())
            objects.stdin.flush()
            head = objects.stdout.readline().split()
            if len(head) != 3 or int(head[2]) != entry.size:
                raise NotReady("git gave an object of another size than it listed")
            content = objects.stdout.read(entry.size)
            objects.stdout.read(1)
            if entry.mode is None:
                writer.link(entry.path, tree.link_target(entry, content))
            else:
                writer.file(entry.path, content, mode=entry.mode)
        objects.stdin.close()
