"""krt as a person and a script use it: output, sentences, exit statuses."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.sdk_server import Reply, Server, failure, serving

from kruntimes.cli import main, progress, show


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
        pytest.param(["delete", "none"], 1, "there is no Run none", id="delete-none"),
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


def test_deleting_goes_on_past_a_name_that_is_not_there(server: Server) -> None:
    server.add_run("one")
    server.add_run("two")
    result = krt(server, "delete", "one", "none", "two")
    assert (result.exit_code, result.stdout) == (1, "Run one deleted\nRun two deleted\n")
    assert "there is no Run none" in result.stderr
    assert krt(server, "delete", "none", "--ignore-not-found").exit_code == 0


def test_a_wait_tells_where_the_run_stands(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    server.add_run("slow", phase="Pending", ready=False)
    result = krt(server, "wait", "slow", "--timeout", "200ms")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].startswith("krt: Run slow is Pending")
    assert result.stderr.count("\n") == 2, "once for each place, and the end"


def test_names_of_runs_are_completed(server: Server) -> None:
    for name in ("alpha", "alps", "beta"):
        server.add_run(name)
    asked = {"_KRT_COMPLETE": "bash_complete", "COMP_WORDS": "krt invoke al", "COMP_CWORD": "2"}
    env = {**os.environ, **asked, "KUBECONFIG": str(server.kubeconfig())}
    program = [sys.executable, "-c", "from kruntimes.cli.main import cli; cli(prog_name='krt')"]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["plain,alpha", "plain,alps"]
    nowhere = subprocess.run(program, env={**env, "KUBECONFIG": "/nowhere"}, capture_output=True, text=True, timeout=60)
    assert (nowhere.stdout.strip(), nowhere.stderr) == ("", "")


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


def test_a_run_that_has_ended_is_not_said_to_be_asked_to(server: Server) -> None:
    server.add_run("hello", phase="Succeeded", ready=False)
    result = krt(server, "cancel", "hello")
    assert (result.exit_code, result.output) == (0, "Run hello has ended already: Succeeded\n")
    assert "cancelRequested" not in server.runs["hello"]["spec"]


@pytest.mark.parametrize("handler", ["hello", "hello.", ".handler"])
def test_a_handler_without_module_or_function_is_a_wrong_command_line(
    server: Server, tmp_path: Path, handler: str
) -> None:
    file = tmp_path / "hello.py"
    file.write_text("def handler(event): return event\n")
    result = krt(server, "run", str(file), "--handler", handler)
    assert result.exit_code == 2
    assert f"--handler {handler!r}: not MODULE.FUNCTION, such as hello.handler" in result.output
    assert server.runs == {}


@pytest.mark.parametrize(
    ("phase", "status", "said"),
    [
        pytest.param("Succeeded", 0, "", id="succeeded"),
        pytest.param("Failed", 1, "krt: Run nightly-x ended as Failed", id="failed"),
        pytest.param("Running", 1, "krt: Run nightly-x is not phase=Succeeded after 0.1 s", id="not-in-time"),
    ],
)
def test_a_task_is_waited_for(server: Server, tmp_path: Path, phase: str, status: int, said: str) -> None:
    file = tmp_path / "nightly.sh"
    file.write_text("echo hi\n")
    server.made_phase = phase
    result = krt(server, "task", str(file), "--wait", "--wait-timeout", "100ms")
    assert (result.exit_code, result.stdout) == (status, "nightly-x\n"), result.output
    assert result.stderr.startswith(said)


def placed(server: Server, name: str, *, phase: str = "Ready", deleting: bool = False) -> None:
    """A Run that `krt dev` has put in the place of `hello`."""
    server.add_run(name, phase=phase)
    server.runs[name]["metadata"]["labels"] = {"kruntimes.io/dev-name": "hello"}
    if deleting:
        server.runs[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def test_a_name_is_followed_to_the_run_in_its_place(server: Server) -> None:
    server.add_run("hello")
    placed(server, "hello-2")
    assert krt(server, "get", "hello", "-o", "name").stdout == "run.kruntimes.io/hello\n", "the first one still serves"
    server.runs["hello"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert krt(server, "get", "hello", "-o", "name").stdout == "run.kruntimes.io/hello-2\n"
    del server.runs["hello"]
    placed(server, "hello-3", phase="Running")
    placed(server, "hello-4", deleting=True)
    assert krt(server, "get", "hello", "-o", "name").stdout == "run.kruntimes.io/hello-2\n", "the one that is Ready"
    assert krt(server, "invoke", "hello").exit_code == 0
    assert server.runs["hello-2"]["metadata"]["uid"] in server.calls[-1][1]
    assert krt(server, "delete", "hello").stdout == "Run hello-2 deleted\n"
    assert "hello-2" not in server.runs


def test_logs_are_the_runs_own_lines_in_order(server: Server) -> None:
    server.add_run("hello")
    uid = server.runs["hello"]["metadata"]["uid"]
    long = "0123456789abcdef"
    server.log("runtimed", "run claimed", run_uid=uid, attempt=1)
    server.log("runtime", "function ready", run_uid=uid)
    server.log("runtimed", "function ready", run_uid=uid)
    server.log("runtime", "function log", run_uid=uid, invocation_id="a", line="printed by a")
    server.log("runtime", "function log", run_uid="another", invocation_id="a", line="printed by another")
    server.log("runtimed", "invocation ended", run_uid=uid, invocation_id="a", outcome="completed", status=200, ms=1.5)
    server.log("runtime", "function log", run_uid=uid, invocation_id=long, line="{")
    server.log("runtimed", "invocation ended", run_uid=uid, invocation_id=long, outcome="completed", status=202, ms=1)
    server.log("runtimed", "invocation ended", run_uid=uid, invocation_id=long, outcome="timeout", status=504, ms=9)
    said = [line.split(maxsplit=1)[1] for line in krt(server, "logs", "hello").stdout.splitlines()]
    assert said == [
        "-- run claimed",
        "-- function ready",
        "a         printed by a",
        "a         -- completed, status 200, 1.5 ms",
        "01234567  {",
        "01234567  -- cancellation asked for",
        f"01234567  -- timeout, status 504, 9 ms, invocation {long}",
    ]
    assert krt(server, "logs", "hello", "--invocation", "a", "--tail", "1").stdout.endswith(
        "completed, status 200, 1.5 ms\n"
    )
    raw = krt(server, "logs", "hello", "--invocation", "a", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["message"] for line in raw] == ["function log", "invocation ended"]


@pytest.mark.parametrize("assigned", [True, False], ids=["its-pod", "no-pod-any-more"])
def test_following_the_logs_of_a_run_that_has_ended_shows_them_and_ends(server: Server, assigned: bool) -> None:
    server.add_run("hello", phase="Failed")
    if not assigned:
        del server.runs["hello"]["status"]["assignedPod"]
    uid = server.runs["hello"]["metadata"]["uid"]
    server.log("runtime", "function log", run_uid=uid, invocation_id="a", line="last words")
    result = krt(server, "logs", "hello", "-f")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("last words") == 1


def test_a_task_is_declared(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "nightly.sh"
    file.write_text("echo hi\n")
    result = krt(server, "task", str(file), "-e", "A=1", "--timeout", "10m", "--", "--verbose", "x")
    assert (result.exit_code, result.stdout) == (0, "nightly-x\n"), result.output
    assert result.stderr == ""
    assert server.runs["nightly-x"]["spec"] == {
        "runtime": "bash",
        "source": {"inline": "echo hi\n"},
        "mode": {"task": {"args": ["--verbose", "x"], "entrypoint": "nightly.sh"}},
        "env": [{"name": "A", "value": "1"}],
        "timeout": "10m",
    }


@pytest.mark.parametrize(
    ("state", "status", "said"),
    [
        pytest.param("ready", 0, "Run hello is ready", id="ready"),
        pytest.param("phase=ready", 0, "Run hello is phase=Ready", id="a-phase-in-any-case"),
        pytest.param("phase=Failed", 1, "is not phase=Failed after 0.1 s", id="another-phase"),
        pytest.param("phase=Done", 2, "is none of ready, ended, deleted, phase=(Pending|", id="no-phase"),
    ],
)
def test_wait_knows_states_and_phases(server: Server, state: str, status: int, said: str) -> None:
    server.add_run("hello")
    result = krt(server, "wait", "hello", "--for", state, "--timeout", "100ms")
    assert result.exit_code == status, result.output
    assert said in result.output.replace("\n", " ")


def test_a_phase_that_can_never_come_is_not_waited_for(server: Server) -> None:
    server.add_run("hello", phase="Failed")
    assert "ended as Failed" in krt(server, "wait", "hello", "--for", "phase=Running").stderr
    assert krt(server, "wait", "hello", "--for", "phase=Failed").exit_code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_what_the_shell_reads(server: Server, shell: str) -> None:
    assert "_KRT_COMPLETE" in krt(server, "completion", shell).stdout


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
    assert show.description(RUN, [], now=now).splitlines() == [
        "Name:       d/x", "UID:        u", "Runtime:    python", "Handler:    m.f", "Phase:      Pending",
        "Attempt:    0", "Conditions:", "Events:     none",
    ]  # fmt: skip


def test_a_task_is_described_by_what_it_starts() -> None:
    run = RUN | {"spec": {"runtime": "bash", "mode": {"task": {"args": ["-v", "x"]}}}}
    said = show.description(run, [], now=datetime(2026, 1, 1, tzinfo=UTC))
    assert "Task:       (the Runtime's) -v x" in said
    assert "Handler:" not in said


@pytest.mark.parametrize("listed", [False, True])
def test_yaml_shows_source_as_it_was_written(listed: bool) -> None:
    """And nothing of managedFields, in the object and in each of a list."""
    run = {"metadata": {"name": "a", "managedFields": [{"manager": "m"}]}, "spec": {"inline": "x = 1\nprint(x)\n"}}
    obj = {"kind": "RunList", "metadata": {}, "items": [run]} if listed else run
    text = show.rendered(obj, "yaml")
    assert "inline: |\n" in text
    assert not any("managedFields" in show.rendered(obj, form) for form in ("yaml", "json"))
    found = yaml.safe_load(f"{text}\n")
    assert (found["items"][0] if listed else found) == {**run, "metadata": {"name": "a"}}
