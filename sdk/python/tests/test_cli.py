"""krt as a person and a script use it: output, sentences, exit statuses."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.sdk_server import Reply, Server, failure, serving

from kruntimes.cli import main, show


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as state:
        yield state


def krt(server: Server, *arguments: str, given: bytes | None = None, **env: str) -> Result:
    """Runs krt in this process, with the exit status that `main` would give."""
    runner = CliRunner(env={"KUBECONFIG": str(server.kubeconfig()), "KRT_TOKEN": None, **env})

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def entry(rest: tuple[str, ...]) -> None:
        main.run(list(rest))

    return runner.invoke(entry, ["--", *arguments], input=given)


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    script = (
        "import sys; from kruntimes.cli import main\n"
        "try: main.cli.main(['--help'], standalone_mode=True)\n"
        "except SystemExit: pass\n"
        "print([m for m in ('grpc', 'aiohttp', 'kubernetes_asyncio', 'httpx', 'yaml', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.endswith("[]\n")
    assert all(name in done.stdout for name in main.COMMANDS)


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_has_a_help_of_its_own(name: str) -> None:
    result = CliRunner().invoke(main.cli, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        pytest.param(Reply(), 0, id="completed"),
        pytest.param(failure(500, "function_error", "FunctionError"), 1, id="function-error"),
        pytest.param(failure(403, "rejected", "Forbidden"), 3, id="rejected"),
        pytest.param(failure(503, "not_dispatched", "NotReady"), 3, id="not-dispatched"),
        pytest.param(failure(502, "unknown", "OutcomeUnknown"), 4, id="unknown"),
        pytest.param(failure(504, "timeout", "DeadlineExceeded"), 5, id="timeout"),
        pytest.param(failure(499, "cancelled", "Cancelled"), 6, id="cancelled"),
        pytest.param(Reply(fault="reset"), 4, id="cut"),
    ],
)
def test_the_exit_status_of_invoke_tells_the_outcome(server: Server, reply: Reply, status: int) -> None:
    server.add_run("hello")
    server.reply = reply
    result = krt(server, "invoke", "hello", "-d", '{"name": "you"}')
    assert result.exit_code == status, result.output
    if status == 0:
        assert result.stdout == '{"hello": "you"}'
    else:
        assert result.stdout == ""
        assert result.stderr.startswith("krt: ")


def test_invoke_takes_its_payload_from_where_it_is_told(server: Server, tmp_path: Path) -> None:
    server.add_run("hello")
    (tmp_path / "body").write_bytes(b"\x00\xff")
    krt(server, "invoke", "hello", "-d", f"@{tmp_path / 'body'}", "--content-type", "application/octet-stream")
    assert server.calls[-1][3] == b"\x00\xff"
    krt(server, "invoke", "hello", "-d", "-", given=b"from stdin")
    assert server.calls[-1][3] == b"from stdin"
    krt(server, "invoke", "hello", "--id", "mine", "--timeout", "1m5s")
    assert server.calls[-1][2]["x-kruntime-timeout-ms"] == "65000"
    assert server.calls[-1][3] == b"{}"


def test_invoke_as_json_holds_the_whole_answer(server: Server) -> None:
    server.add_run("hello")
    server.reply = Reply(body=b'{"output": 1, "invocationId": "i", "logTail": "said"}')
    result = krt(server, "invoke", "hello", "-o", "json")
    assert json.loads(result.stdout) == {"outcome": "completed", "output": 1, "invocationId": "i", "logTail": "said"}
    assert server.calls[-1][2]["accept"] == "application/vnd.kruntimes.invocation+json"
    server.reply = failure(500, "function_error", "FunctionError", traceback="Traceback")
    told = json.loads(krt(server, "invoke", "hello", "-o", "json").stdout)
    assert (told["outcome"], told["retrySafe"], told["details"]) == (
        "function_error",
        False,
        {"traceback": "Traceback"},
    )


def test_krt_token_is_what_functions_are_called_with(server: Server) -> None:
    server.add_run("hello")
    krt(server, "invoke", "hello", KRT_TOKEN="mine")
    assert server.calls[-1][2]["authorization"] == "Bearer mine"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param(["invoke", "none"], 3, "none not found", id="no-run"),
        pytest.param(["get", "none"], 1, "none not found", id="get-none"),
        pytest.param(["wait", "none"], 1, "there is no Run none", id="wait-none"),
        pytest.param(["delete", "none"], 1, "none not found", id="delete-none"),
        pytest.param(["invoke", "hello", "--timeout", "soon"], 2, "not a duration", id="bad-duration"),
        pytest.param(["invoke", "hello", "--id", "a b"], 2, "visible ASCII", id="bad-id"),
        pytest.param(["invoke", "hello", "-d", "@/nowhere"], 2, "No such file", id="no-payload"),
        pytest.param(["nonsense"], 2, "No such command", id="no-command"),
        pytest.param([], 2, "Usage:", id="nothing"),
        pytest.param(["get", "--kubeconfig", "/nowhere"], 1, "no such file", id="no-kubeconfig"),
        pytest.param(["dev", "--"], 2, "nothing follows --", id="no-command-after-dashes"),
    ],
)
def test_what_goes_wrong_is_a_sentence(server: Server, arguments: list[str], status: int, said: str) -> None:
    server.add_run("hello")
    result = krt(server, *arguments)
    assert result.exit_code == status, result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_function_is_declared_from_a_file_and_waited_for(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "greet.py"
    file.write_text("def handler(event): return event\n")
    options = ["--handler", "greet.handler", "-e", "A=b=c", "--timeout", "8h", "--idle-timeout", "10m", "--wait"]
    result = krt(server, "run", str(file), *options)
    assert (result.exit_code, result.stdout) == (0, "greet-x\n"), result.output
    assert server.runs["greet-x"]["spec"] == {
        "runtime": "python",
        "source": {"inline": file.read_text(), "inlinePath": "greet.py"},
        "mode": {"function": {"handler": "greet.handler", "idleTimeoutSeconds": 600}},
        "env": [{"name": "A", "value": "b=c"}],
        "timeout": "8h",
    }


def test_runs_are_shown_and_deleted(server: Server) -> None:
    server.add_run("one")
    server.add_run("two", phase="Pending", ready=False)
    shown = krt(server, "get")
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:]] == [["one", "Ready"], ["two", "Pending"]]
    assert json.loads(krt(server, "get", "one", "-o", "json").stdout)["metadata"]["name"] == "one"
    assert "functions/" in krt(server, "get", "-o", "wide").stdout
    assert krt(server, "delete", "one", "two").exit_code == 0
    assert server.runs == {}
    assert krt(server, "delete", "one", "--ignore-not-found").exit_code == 0


def test_a_run_or_one_invocation_is_cancelled(server: Server) -> None:
    server.add_run("hello")
    assert krt(server, "cancel", "hello").exit_code == 0
    assert server.runs["hello"]["spec"]["cancelRequested"] is True
    server.reply = Reply(202, b"{}", {})
    assert krt(server, "cancel", "hello", "--invocation", "i/1").exit_code == 0
    assert server.calls[-1][1].endswith("/invocations/i%2F1:cancel")


RUN: dict[str, Any] = {
    "metadata": {"name": "x", "namespace": "d", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"runtime": "python", "mode": {"function": {"handler": "m.f"}}},
}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        pytest.param(0, "0s", id="now"),
        pytest.param(119, "119s", id="seconds"),
        pytest.param(120, "2m", id="minutes"),
        pytest.param(7200, "2h", id="hours"),
        pytest.param(10 * 86400, "10d", id="days"),
    ],
)
def test_ages_are_kubectls(seconds: int, said: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    now = datetime.fromtimestamp(start.timestamp() + seconds, UTC)
    assert show.age("2026-01-01T00:00:00Z", now=now) == said


def test_a_run_that_nobody_has_touched_is_pending() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert show.table([RUN], now=now, wide=False).splitlines()[1].split() == ["x", "Pending", "python", "0s"]
    assert "Phase:      Pending" in show.description(RUN, [], now=now)
