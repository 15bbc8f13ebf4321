"""What a change of a file means, and what a source that cannot be loaded is told."""

from pathlib import Path

import pytest

from kruntimes.common.api.names import NAME_LABEL
from kruntimes.common.api.views import Meta, Run, RunStatus
from kruntimes.local import syntax
from kruntimes.local.project import run_of
from kruntimes.local.reload import GONE_LOOKS, File, ended, reason, successor


def test_a_new_text_is_given_once_it_has_settled(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text("a")
    file = File(path, "a")
    assert [file.look(), file.look(), file.look()] == [None, None, None]
    path.write_text("ab")
    assert file.look() is None, "it may still be written"
    assert file.look() == "ab"
    assert file.look() is None


def test_a_file_that_goes_and_comes_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text("a")
    file = File(path, "a")
    file.look()
    path.unlink()
    assert file.look() is None
    path.write_text("b")
    assert [file.look(), file.look()] == [None, "b"]


def test_a_file_that_stays_away_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text("a")
    file = File(path, "a")
    file.look()
    path.unlink()
    assert [file.look() for _ in range(GONE_LOOKS - 1)] == [None] * (GONE_LOOKS - 1)
    with pytest.raises(ValueError, match=r"f\.py is gone"):
        file.look()
    assert [file.look() for _ in range(3 * GONE_LOOKS)] == [None] * (3 * GONE_LOOKS)


def test_what_was_forgotten_is_given_by_the_next_save_and_no_sooner(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text("a")
    file = File(path, "a")
    assert [file.look(), file.look()] == [None, None]
    file.forget()
    assert [file.look(), file.look()] == [None, None]
    fresh = tmp_path / "g.py"
    fresh.write_text("a")
    fresh.replace(path)
    assert [file.look(), file.look(), file.look()] == [None, "a", None]


@pytest.mark.parametrize(
    ("file", "said"),
    [
        pytest.param("f.py", "Run f ended as Failed: its Pod is gone\n  to have it back: save f.py again", id="a-file"),
        pytest.param("", "Run f ended as Failed: its Pod is gone\n  to have it back: delete it and", id="no-file"),
    ],
)
def test_the_end_of_a_function_is_told_with_what_to_do(file: str, said: str) -> None:
    over = Run(
        metadata=Meta(name="f"),
        status=RunStatus(phase="Failed", message="attempt 3 of 3: RuntimePodLost: its Pod is gone"),
    )
    assert ended(over, file=file).startswith(said)


def test_a_touch_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text("a")
    file = File(path, "a")
    fresh = tmp_path / "g.py"
    fresh.write_text("a")
    fresh.replace(path)
    assert [file.look(), file.look(), file.look()] == [None, None, None]


def test_bytes_that_are_no_text_are_told_once(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_bytes(b"\xff")
    file = File(path, "a")
    assert file.look() is None
    with pytest.raises(ValueError, match=r"f\.py is not UTF-8"):
        file.look()
    assert file.look() is None


def test_the_new_run_differs_in_name_label_and_text_alone() -> None:
    old = run_of("greet.py", "old")
    new = successor(old, text="new", number=3)
    assert new["metadata"] == {"name": "greet-3", "labels": {NAME_LABEL: "greet"}}
    assert new["spec"]["source"] == {"inline": "new", "inlinePath": "greet.py"}
    assert new["spec"]["mode"] == old["spec"]["mode"]
    assert old == run_of("greet.py", "old")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        pytest.param("attempt 1 of 1: RegistrationFailed: x (f.py, line 1)\nmore", "x (f.py, line 1)", id="traceback"),
        pytest.param("", "Failed", id="nothing-said"),
    ],
)
def test_the_reason_is_one_line(message: str, said: str) -> None:
    assert reason(Run(status=RunStatus(phase="Failed", message=message))) == said


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        pytest.param("f.py", "def f():\n    return 1\n", None, id="python"),
        pytest.param("f.py", "\ufeffx = 1\n", None, id="a-byte-order-mark"),
        pytest.param(
            "f.py", "\ufeff\nx = (\n", "f.py, line 2: '(' was never closed", id="a-byte-order-mark-and-a-fault"
        ),
        pytest.param("f.py", "# coding: none\n", "f.py, line 1: unknown encoding: none", id="no-such-encoding"),
        pytest.param("f.sh", "\ufefff() { :; }\n", "f.sh, line 1: a byte order mark, which", id="bash-with-a-mark"),
        pytest.param("f.py", "x = '\\d'\n", None, id="a-warning-is-no-error"),
        pytest.param("f.py", "\ndef f(:\n", "f.py, line 2: invalid syntax", id="not-python"),
        pytest.param("f.py", "x\0", "f.py: not Python: source code string cannot contain null bytes", id="null"),
        pytest.param("f.sh", "f() { echo 1; }\n", None, id="bash"),
        pytest.param("f.sh", "touch made\nif\n", "f.sh, line 3: syntax error: unexpected end of file", id="not-bash"),
        pytest.param("f.txt", "(", None, id="something-else"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, said: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    found = syntax.trouble(file, text)
    begins = found is not None and said is not None and found.startswith(said)
    assert found == said or begins or (found is not None and "null bytes" in found and said is not None)
    assert list(tmp_path.iterdir()) == [], "nothing was executed"
