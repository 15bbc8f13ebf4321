"""Sources on disk: whole, in their place, and never through a link that user code left."""

import os
from pathlib import Path

import pytest

from kruntimes.common.api.views import Source
from kruntimes.common.errors import NotReady, Terminal
from kruntimes.runtimed import source

CODE = "def main(event):\n    return 'grüße'\n"


def inline(path: str = "handler.py", code: str = CODE) -> Source:
    return Source(inline=code, inline_path=path)


def test_it_is_written_where_the_handler_is_looked_for(tmp_path: Path) -> None:
    folder = source.materialise(tmp_path, uid="u", attempt=2, source=inline("pkg/sub/handler.py"))
    assert folder == tmp_path / "u" / "2"
    assert (folder / "pkg" / "sub" / "handler.py").read_text() == CODE
    assert sorted(p.name for p in (folder / "pkg" / "sub").iterdir()) == ["handler.py"]


def test_repeated_it_leaves_the_same(tmp_path: Path) -> None:
    for _ in range(2):
        folder = source.materialise(tmp_path, uid="u", attempt=1, source=inline())
    assert [p.name for p in folder.iterdir()] == ["handler.py"]


def test_without_a_source_the_folder_is_there(tmp_path: Path) -> None:
    assert source.materialise(tmp_path, uid="u", attempt=1, source=None).is_dir()


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../x", "a//b", "./a", "a/.", "a/", "a\0b", "x" * 5000])
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(Terminal):
        source.materialise(tmp_path, uid="u", attempt=1, source=inline(path))
    assert not (tmp_path / "u").exists()


def test_bytes_are_bounded_not_characters(tmp_path: Path) -> None:
    code = "ü" * (source.MAX_SOURCE_BYTES // 2)
    source.materialise(tmp_path, uid="u", attempt=1, source=inline(code=code))
    with pytest.raises(Terminal, match="bytes"):
        source.materialise(tmp_path, uid="u", attempt=1, source=inline(code=code + "x"))


def test_a_repository_is_said_not_to_be_supported(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match="repository"):
        source.materialise(tmp_path, uid="u", attempt=1, source=Source(repo_url="https://example.org/x"))


@pytest.mark.parametrize("link", ["u", "u/1", "u/1/pkg"])
def test_a_link_in_the_way_is_never_followed(tmp_path: Path, link: str) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    (workspace / link).parent.mkdir(parents=True)
    (workspace / link).symlink_to(outside)
    with pytest.raises(Terminal):
        source.materialise(workspace, uid="u", attempt=1, source=inline("pkg/handler.py"))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["handler.py", ".handler.py.kruntimes-new"])
def test_a_link_in_place_of_the_file_is_replaced_not_written_through(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "workspace" / "u" / "1"
    folder.mkdir(parents=True)
    (folder / name).symlink_to(outside)
    source.materialise(tmp_path / "workspace", uid="u", attempt=1, source=inline())
    assert outside.read_text() == "mine"
    assert not (folder / "handler.py").is_symlink()
    assert (folder / "handler.py").read_text() == CODE


def test_a_workspace_that_is_away_may_come_back(tmp_path: Path) -> None:
    with pytest.raises(NotReady):
        source.materialise(tmp_path / "none", uid="u", attempt=1, source=inline())


def test_removal_takes_the_epoch_and_nothing_of_others(tmp_path: Path) -> None:
    outside = tmp_path / "shared"
    outside.mkdir()
    (outside / "data").write_text("kept")
    for attempt in (1, 2):
        source.materialise(tmp_path, uid="u", attempt=attempt, source=inline())
    (tmp_path / "u" / "1" / "link").symlink_to(outside)
    source.remove(tmp_path, uid="u", attempt=1)
    assert (tmp_path / "u" / "2" / "handler.py").exists()
    assert (outside / "data").read_text() == "kept"
    source.remove(tmp_path, uid="u", attempt=2)
    source.remove(tmp_path, uid="u", attempt=2)
    assert os.listdir(tmp_path) == ["shared"]


def test_removal_does_not_follow_a_link_either(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    (outside / "1").mkdir(parents=True)
    workspace.mkdir()
    (workspace / "u").symlink_to(outside)
    with pytest.raises(NotReady):
        source.remove(workspace, uid="u", attempt=1)
    assert (outside / "1").is_dir()
