"""What people's Bash functions do, each a program on disk, through a real Runtime Server process."""

import asyncio
from pathlib import Path

import pytest
from tests.runtime_process import FAILED, Client, Server, until


@pytest.mark.parametrize(
    ("function", "status"),
    [("fails", "status 3"), ("leaves", "status 4"), ("strict", "status 1"), ("killed", "139 (as after SIGSEGV)")],
)
async def test_the_exit_status_decides(bash: Client, bash_server: Server, function: str, status: str) -> None:
    registered = await bash.register("shell_diagnostics", f"diag.{function}")
    for _ in range(2):
        failure = await registered.fails(b"x")
        assert (failure.code, failure.reason, failure.type) == ("UNKNOWN", "FunctionError", "ExitStatus")
        assert status in failure.message
    if function == "fails":
        assert "cannot go on" in bash_server.text()


async def test_diagnostics_are_the_log_and_no_error(bash: Client, bash_server: Server) -> None:
    registered = await bash.register("shell_diagnostics", "diag.works")
    assert await registered.output(b"w-1") == b"fine\n"
    log = bash_server.text()
    assert "warning: w-1" in log
    assert "/does/not/exist" in log


@pytest.mark.parametrize(
    "payload",
    [
        b"$(touch /tmp/never)`id`",
        b"'; exit 9; '",
        b'"\\\n *  ~ $HOME ${PATH} !! \t',
        b"\n\n trailing \n\n",
        "grüße".encode(),
        b"\xff\xfe",
        b"-n",
        b"",
        b"FUNCTION_PAYLOAD_END\nQUIT\n",
        b"x" * (1024 * 1024),
    ],
)
async def test_input_is_one_argument_and_never_evaluated(bash: Client, payload: bytes) -> None:
    registered = await bash.register("shell_values", "values.echo_back")
    assert await registered.output(payload, content_type="text/plain") == payload
    await registered.unregister()


async def test_input_with_a_nul_is_refused(bash: Client) -> None:
    registered = await bash.register("shell_values", "values.echo_back")
    assert (await registered.fails(b"a\0b")).code == "INVALID_ARGUMENT"
    assert await registered.output(b"after") == b"after"


@pytest.mark.parametrize(
    ("function", "body", "content_type"),
    [
        ("json", b'{"ok": [1, 2]}\n', "application/json"),
        ("raw", b"\xff\xfe", "application/octet-stream"),
        ("nothing", b"", "text/plain; charset=utf-8"),
        ("about", b"id-7 text/x 1", "text/plain; charset=utf-8"),
        ("largest", b"x" * 1048576, "text/plain; charset=utf-8"),
        ("flood", b"kept", "text/plain; charset=utf-8"),
    ],
)
async def test_answers(bash: Client, function: str, body: bytes, content_type: str) -> None:
    registered = await bash.register("shell_values", f"values.{function}")
    answer = await registered.invoke(b"", content_type="text/x", invocation_id="id-7")
    assert (answer.output, answer.content_type) == (body, content_type)


async def test_outputs(bash: Client) -> None:
    registered = await bash.register("shell_values", "values.outputs")
    for name in (b"one", b"two"):
        assert (await registered.invoke(name)).outputs == {"name": name.decode(), "url": "a=b"}
    bad = await bash.register("shell_values", "values.bad_outputs")
    assert (await bad.fails()).type == "OutputsError"


async def test_an_answer_over_a_mebibyte_is_an_error(bash: Client) -> None:
    registered = await bash.register("shell_values", "values.large")
    assert (await registered.fails()).type == "OutputTooLarge"


async def test_each_call_has_a_subshell_of_its_own(bash: Client) -> None:
    registered = await bash.register("shell_values", "values.count")
    assert [await registered.output() for _ in range(3)] == [b"1", b"1", b"1"]


async def test_background_processes_delay_nothing_and_do_not_stay(bash: Client, bash_server: Server) -> None:
    registered = await bash.register("shell_values", "values.background")
    assert await registered.output() == b"answered"
    before = len(bash_server.processes())
    for _ in range(10):
        assert await registered.output(millis=5000) == b"answered"
    await until(lambda: len(bash_server.processes()) <= before, "processes accumulate")
    await until(lambda: not bash_server.zombies(), "zombies stay")


@pytest.mark.parametrize(("function", "stage"), [("forever", "ask"), ("sleeps", "ask"), ("stubborn", "term")])
async def test_the_deadline_ends_everything(bash: Client, bash_server: Server, function: str, stage: str) -> None:
    registered = await bash.register("shell_values", f"values.{function}")
    failure = await registered.fails(millis=200)
    assert (failure.code, failure.metadata["stage"]) == ("DEADLINE_EXCEEDED", stage)
    assert (await registered.status()).in_flight == 0
    assert not [pid for pid in bash_server.processes() if _cmdline(pid).startswith(b"sleep\0")]
    assert (await registered.fails(millis=100)).code == "DEADLINE_EXCEEDED"
    await registered.unregister()


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("syntax.fine", "syntax error"),
        ("exits.run", "exited with status 7 while it was sourced"),
        ("absent.run", "there is no file absent.sh"),
    ],
)
async def test_files_that_cannot_be_sourced(bash: Client, handler: str, says: str) -> None:
    registered = await bash.register("shell_broken", handler, expect=FAILED)
    assert says in (await registered.status()).fatal_error


async def test_a_function_that_is_not_there(bash: Client) -> None:
    registered = await bash.register("shell_values", "values.absent", expect=FAILED)
    assert "defines no function 'absent'" in (await registered.status()).fatal_error


async def test_many_calls_keep_the_shell(bash: Client, bash_server: Server) -> None:
    registered = await bash.register("shell_values", "values.echo_back")
    before = sorted(bash_server.processes())
    for number in range(50):
        assert await registered.output(b"%d" % number) == b"%d" % number
    assert sorted(bash_server.processes()) == before
    await asyncio.gather(registered.unregister(), registered.unregister())


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
