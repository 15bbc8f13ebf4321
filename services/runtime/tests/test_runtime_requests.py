"""What may be asked of the Runtime Server, field by field."""

import socket
from pathlib import Path

import pytest

from kruntimes.runtime import requests
from kruntimes.runtime.registry import Code, Refused, Wanted
from kruntimes.runtime.sockets import binding

GOOD: dict[str, object] = {
    "kind": "python", "run_uid": "2c24c1f0", "attempt": 1, "digest": "0" * 64, "handler": "main.handler",
    "working_dir": "/", "env": {"A": "b"}, "idle_timeout": 0, "forked": False,
}  # fmt: skip


def check(**changes: object) -> Wanted | Refused:
    return requests.check_registration(**{**GOOD, **changes})  # type: ignore[arg-type]


def test_a_good_registration() -> None:
    wanted = check()
    assert isinstance(wanted, Wanted)
    assert wanted.env == (("A", "b"),)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        pytest.param({"run_uid": ""}, "run_uid", id="no-uid"),
        pytest.param({"run_uid": "a b"}, "run_uid", id="blank-in-uid"),
        pytest.param({"attempt": 0}, "registration_attempt", id="attempt-0"),
        pytest.param({"digest": "A" * 64}, "registration_digest", id="upper-case-digest"),
        pytest.param({"handler": "main"}, "handler", id="no-function"),
        pytest.param({"handler": "../main.handler"}, "handler", id="path-in-module"),
        pytest.param({"handler": "main.handler()"}, "handler", id="expression"),
        pytest.param({"kind": "bash", "handler": "../x.run"}, "handler", id="path-out-of-the-folder"),
        pytest.param({"kind": "bash", "handler": "x.run; rm"}, "handler", id="shell"),
        pytest.param({"working_dir": "relative"}, "working_dir", id="relative"),
        pytest.param({"working_dir": "/does/not/exist"}, "working_dir", id="missing"),
        pytest.param({"env": {"A=B": ""}}, "env", id="equals-in-name"),
        pytest.param({"env": {"A": "x\0"}}, "env", id="nul"),
        pytest.param({"env": {"A": "x" * 200_000}}, "env", id="too-large"),
        pytest.param({"idle_timeout": -1}, "idle_timeout", id="negative"),
    ],
)
def test_bad_registrations_name_the_field(changes: dict[str, object], names: str) -> None:
    refused = check(**changes)
    assert isinstance(refused, Refused)
    assert refused.code is Code.INVALID_ARGUMENT
    assert names in refused.message


@pytest.mark.parametrize(("kind", "handler", "forked"), [("python", "main.handler", True), ("bash", "main.run", False)])
def test_isolation_fork_concerns_python_only(kind: str, handler: str, forked: bool) -> None:
    wanted = check(kind=kind, handler=handler, forked=True)
    assert isinstance(wanted, Wanted)
    assert wanted.forked is forked


@pytest.mark.parametrize("handler", ["file.run", "sub/dir/file-1.run-it", "a.b"])
def test_good_bash_handlers(handler: str) -> None:
    assert isinstance(check(kind="bash", handler=handler), Wanted)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, 60.0, id="default"),
        pytest.param({"timeout_millis": 1500}, 1.5, id="asked"),
        pytest.param({"timeout_millis": 900_000}, 900.0, id="most"),
        pytest.param({"timeout_millis": 900_001}, None, id="more"),
        pytest.param({"timeout_millis": -1}, None, id="negative"),
        pytest.param({"invocation_id": "a b"}, None, id="blank-in-id"),
        pytest.param({"invocation_id": ""}, 60.0, id="no-id"),
        pytest.param({"content_type": "a\nb"}, None, id="line-end-in-type"),
        pytest.param({"size": 1024 * 1024}, 60.0, id="largest"),
        pytest.param({"size": 1024 * 1024 + 1}, None, id="too-large"),
    ],
)
def test_invocations(changes: dict[str, object], expected: float | None) -> None:
    fields: dict[str, object] = {
        "invocation_id": "i", "content_type": "", "size": 0, "timeout_millis": 0, "default": 60.0, "maximum": 900.0,
    }  # fmt: skip
    got = requests.check_invocation(**{**fields, **changes})  # type: ignore[arg-type]
    if expected is None:
        assert isinstance(got, Refused)
        assert got.code is Code.INVALID_ARGUMENT
    else:
        assert got == expected


def test_a_function_sees_the_containers_environment_and_its_own_but_no_setting_of_the_server() -> None:
    wanted = check(env={"PATH": "/mine", "X": "1"})
    assert isinstance(wanted, Wanted)
    own = {"PATH": "/bin", "HOME": "/root", "KRUNTIMES_EXECUTOR_SOCKET": "/run/x"}
    assert requests.environment_of(wanted, own) == {"PATH": "/mine", "HOME": "/root", "X": "1"}


def test_a_socket_that_is_in_use_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(OSError, match="another process listens"), binding(path):
            pass
    with binding(path):
        assert not path.exists()
    path.write_text("a file of somebody")
    with binding(path):
        assert path.exists()
