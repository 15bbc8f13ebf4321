"""Sources on disk: whole, in their place, and never through a link that user code left."""

import os
from pathlib import Path

import pytest

from kruntimes.common.errors import NotReady, Terminal
from kruntimes.runtimed import source
from kruntimes.runtimed.source import Home

CODE = "def main(event):\n    return 'grüße'\n"


BASE = Path(".kruntimes") / "pod-1"


def write(
    workspace: Path, path: str = "handler.py", *, code: str | None = CODE, uid: str = "u", attempt: int = 1
) -> Path:
    return source.materialise(Home(workspace, "pod-1"), uid=uid, attempt=attempt, inline=code, path=path)


def remove(workspace: Path, *, uid: str = "u", attempt: int = 1) -> None:
    source.remove(Home(workspace, "pod-1"), uid=uid, attempt=attempt)


def test_it_is_written_where_the_handler_is_looked_for(tmp_path: Path) -> None:
    folder = write(tmp_path, "pkg/sub/handler.py", attempt=2)
    assert folder == tmp_path / BASE / "u" / "2"
    assert (folder / "pkg" / "sub" / "handler.py").read_text() == CODE
    assert sorted(p.name for p in (folder / "pkg" / "sub").iterdir()) == ["handler.py"]


def test_repeated_it_leaves_the_same(tmp_path: Path) -> None:
    for _ in range(2):
        folder = write(tmp_path)
    assert [p.name for p in folder.iterdir()] == ["handler.py"]


def test_without_a_source_the_folder_is_there(tmp_path: Path) -> None:
    assert write(tmp_path, code=None).is_dir()


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../x", "a//b", "./a", "a/.", "a/", "a\0b", "x" * 5000])
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(Terminal):
        write(tmp_path, path)
    assert list(tmp_path.iterdir()) == []


def test_bytes_are_bounded_not_characters(tmp_path: Path) -> None:
    code = "ü" * (source.MAX_SOURCE_BYTES // 2)
    write(tmp_path, code=code)
    with pytest.raises(Terminal, match="bytes"):
        write(tmp_path, code=code + "x")


@pytest.mark.parametrize("link", [BASE.parent, BASE, BASE / "u", BASE / "u/1", BASE / "u/1/pkg"], ids=str)
def test_a_link_in_the_way_is_never_followed(tmp_path: Path, link: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    (workspace / link).parent.mkdir(parents=True)
    (workspace / link).symlink_to(outside)
    with pytest.raises(Terminal):
        write(workspace, "pkg/handler.py")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["handler.py", ".handler.py.kruntimes-new"])
def test_a_link_in_place_of_the_file_is_replaced_not_written_through(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "workspace" / BASE / "u" / "1"
    folder.mkdir(parents=True)
    (folder / name).symlink_to(outside)
    write(tmp_path / "workspace")
    assert outside.read_text() == "mine"
    assert not (folder / "handler.py").is_symlink()
    assert (folder / "handler.py").read_text() == CODE


def test_a_workspace_that_is_away_may_come_back(tmp_path: Path) -> None:
    with pytest.raises(NotReady):
        write(tmp_path / "none")


def test_removal_takes_the_epoch_and_nothing_of_others(tmp_path: Path) -> None:
    outside = tmp_path / "shared"
    outside.mkdir()
    (outside / "data").write_text("kept")
    for attempt in (1, 2):
        write(tmp_path, attempt=attempt)
    (tmp_path / BASE / "u" / "1" / "link").symlink_to(outside)
    remove(tmp_path)
    assert (tmp_path / BASE / "u" / "2" / "handler.py").exists()
    assert (outside / "data").read_text() == "kept"
    remove(tmp_path, attempt=2)
    remove(tmp_path, attempt=2)
    assert sorted(os.listdir(tmp_path)) == [".kruntimes", "shared"]
    assert list((tmp_path / BASE).iterdir()) == []


def test_removal_does_not_follow_a_link_either(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    (outside / "1").mkdir(parents=True)
    (workspace / BASE).mkdir(parents=True)
    (workspace / BASE / "u").symlink_to(outside)
    with pytest.raises(NotReady):
        remove(workspace)
    assert (outside / "1").is_dir()


def test_a_script_that_names_its_interpreter_may_be_executed(tmp_path: Path) -> None:
    folder = write(tmp_path, "script", code="#!/bin/sh\necho hi\n")
    assert os.access(folder / "script", os.X_OK)
    assert not os.access(write(tmp_path, "plain.sh", code="echo hi\n") / "plain.sh", os.X_OK)


@pytest.mark.parametrize(
    ("entrypoint", "path"), [("", "script"), (".", "script"), ("./main.py", "main.py"), ("a//b.sh", "a/b.sh")]
)
def test_a_task_is_written_to_its_entrypoint(entrypoint: str, path: str) -> None:
    assert source.task_path(entrypoint) == path


def test_what_others_left_is_found_and_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    write(tmp_path, uid="gone", attempt=1)
    write(tmp_path, uid="gone", attempt=2)
    write(tmp_path, uid="here")
    (tmp_path / BASE / "link").symlink_to(tmp_path / "shared")
    source.materialise(Home(tmp_path, "pod-2"), uid="gone", attempt=1, inline=CODE, path="handler.py")
    home = Home(tmp_path, "pod-1")
    assert source.found(home) == {"gone", "here", "link"}
    for uid in ("gone", "gone", "link"):
        source.remove_all(home, uid=uid)
    assert source.found(home) == {"here"}
    assert source.found(Home(tmp_path, "pod-2")) == {"gone"}, "another Pod's on the same volume"
    assert (tmp_path / "shared").is_dir()
    assert source.found(Home(tmp_path, "pod-3")) == frozenset()
