"""What people's functions do, as programs on disk, through the whole path."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import RUNS, Api, Gateway, check_error, eventually, path_of

FUNCTIONS = Path(__file__).parent / "functions"


def source_of(name: str) -> str:
    return (FUNCTIONS / name).read_text()


class Called:
    """A Ready function made of a file, and a client to call it with."""

    def __init__(self, run: dict[str, Any], gateway: Gateway, client: httpx.Client) -> None:
        self.run, self.gateway, self.client = run, gateway, client

    def call(self, event: object, **headers: str) -> httpx.Response:
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(
            path_of(self.run), content=json.dumps(event).encode(), headers=self.gateway.headers(extra)
        )


@pytest.fixture
def use(api: Api, gateway: Gateway) -> Iterator[Any]:
    """Gives `use(file, function="handler")`, which makes that file a Ready function until the test ends."""
    stack = ExitStack()

    def make(file: str, function: str = "handler") -> Called:
        stem, suffix = file.split(".")
        run = stack.enter_context(
            api.function(source_of(file), handler=f"{stem}.{function}", runtime="bash" if suffix == "sh" else "python")
        )
        return Called(run, gateway, stack.enter_context(gateway.client()))

    with stack:
        yield make


def processes(marker: str) -> list[str]:
    """The processes of this machine whose command line holds *marker*."""
    found = subprocess.run(["pgrep", "-f", f"sleep {marker}"], capture_output=True, text=True, check=False)
    return found.stdout.split()


def test_progress_without_newlines(use: Any) -> None:
    answer = use("progress.py").call({"fragments": 50_000})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"fragments": 50_000}


def test_the_functions_own_status_decides_in_bash(use: Any) -> None:
    checked = use("diagnostics.sh", "check")
    answer = checked.call("all well")
    assert (answer.status_code, answer.text) == (200, "checked")
    error = check_error(checked.call("please fail"), 500, "function_error")
    assert "7" in json.dumps(error["details"]) + error["message"]
    assert checked.call("again").status_code == 200


def test_a_bash_payload_is_one_argument_and_never_evaluated(use: Any) -> None:
    show = use("quoting.sh", "show")
    text = "$(touch /nowhere) `id` ; rm -rf * \"q\" 'q' \\ $HOME\ttab"
    answer = show.call(text)
    assert (answer.status_code, answer.text) == (200, "1:" + json.dumps(text))


@pytest.mark.parametrize("how", ["sleep", "input", "busy", "stubborn", "child"])
def test_what_never_ends_is_504_with_every_descendant_dead(use: Any, how: str) -> None:
    endless = use("endless.py")
    marker = str(90_000 + time.monotonic_ns() % 9_999)
    error = check_error(endless.call({"how": how, "marker": marker}, x_kruntime_timeout_ms="400"), 504, "timeout")
    assert error["reason"] == "DeadlineExceeded"
    assert not processes(marker)
    assert endless.call({}).text == "served"


def test_a_flood_leaves_the_answer_intact(use: Any) -> None:
    answer = use("floods.py").call({"mebibytes": 40})
    assert answer.status_code == 200, answer.text[:300]
    assert answer.json() == {"intact": "é" * 1000}


def test_writing_to_descriptor_1_does_not_change_the_answer(use: Any) -> None:
    written = use("descriptor.py")
    for _ in range(3):
        answer = written.call({})
        assert (answer.status_code, answer.json()) == (200, {"true": "answer"}), answer.text


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("exit-0", "0"),
        ("exit-3", "3"),
        ("os-exit-0", "0"),
        ("segv", "SIGSEGV"),
        ("kill", "SIGKILL"),
        ("memory", "MemoryError"),
    ],
)
def test_leaving_is_a_function_error_that_names_how(use: Any, how: str, named: str) -> None:
    leaves = use("leaves.py")
    error = check_error(leaves.call({"how": how}), 500, "function_error")
    assert named in error["message"] + json.dumps(error["details"]), error
    assert leaves.call({}).text == "alive"


def test_what_a_call_leaves_behind_cannot_delay_its_answer(use: Any) -> None:
    leftovers = use("leftovers.py")
    marker = str(80_000 + time.monotonic_ns() % 9_999)
    for _ in range(3):
        answer = leftovers.call({"marker": marker}, x_kruntime_timeout_ms="5000")
        assert (answer.status_code, answer.text) == (200, "on time"), answer.text
    eventually("what was left behind is reaped", lambda: not processes(marker))


def test_async_handlers_are_awaited_and_served_again(use: Any) -> None:
    gathers = use("asynchronous.py")
    for _ in range(2):
        assert gathers.call({}).json() == [i * i for i in range(10)]
    runs_a_loop = use("asynchronous.py", "plain")
    for _ in range(2):
        assert runs_a_loop.call({}).json() == 49


@pytest.mark.parametrize(
    ("kind", "content_type", "body"),
    [
        ("bytes", "application/octet-stream", b"\x00\xff"),
        ("str", "text/plain; charset=utf-8", b"text"),
        ("none", "application/json", b"null"),
        ("big", "application/json", b"1180591620717411303424"),
    ],
)
def test_answers_that_can_be_encoded(use: Any, kind: str, content_type: str, body: bytes) -> None:
    answer = use("answers.py").call({"kind": kind})
    assert answer.status_code == 200, answer.text
    assert (answer.headers["content-type"], answer.content) == (content_type, body)


@pytest.mark.parametrize("kind", ["nan", "surrogate", "set", "circular"])
def test_answers_that_cannot_be_encoded_are_named(use: Any, kind: str) -> None:
    error = check_error(use("answers.py").call({"kind": kind}), 500, "function_error")
    if kind in ("nan", "surrogate", "set"):
        assert "a" in error["message"] + json.dumps(error["details"])


def test_a_worker_keeps_its_globals(use: Any) -> None:
    counts = use("globals.py")
    assert [counts.call({}).json()["calls"] for _ in range(3)] == [1, 2, 3]


def test_source_that_cannot_be_imported_fails_with_file_and_line(api: Api) -> None:
    name = f"t-broken-{time.monotonic_ns() % 10**8}"
    api.declare(name, source_of("broken.py"), handler="broken.handler")
    try:

        def failed() -> dict[str, Any] | None:
            run = api.get(f"{RUNS.format('default')}/{name}")
            return run if run and run.get("status", {}).get("phase") == "Failed" else None

        status = eventually("Failed", failed)["status"]
        said = status.get("message", "") + json.dumps(status["conditions"])
        assert "broken.py" in said and "6" in said and "SyntaxError" in said, status
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        assert ready["status"] == "False"
    finally:
        api.delete(name)
