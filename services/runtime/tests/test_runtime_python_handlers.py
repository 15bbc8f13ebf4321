"""What people's Python functions do, each a program on disk, through a real Runtime Server process, both isolations."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.runtime_process import FAILED, Client, Server, alive, connect, until

from kruntimes.pb import executor_v1_pb2 as pb

WORKER, FORK = pb.FUNCTION_ISOLATION_WORKER, pb.FUNCTION_ISOLATION_FORK

TRIES = 5
"""A busy machine may not let a process come to its last words in the quarter of a second that it has."""


@pytest.fixture(params=[WORKER, FORK], ids=["worker", "fork"])
async def python(python_server: Server, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with connect(python_server) as client:
        client.isolation = request.param
        yield client


def event(value: object) -> bytes:
    return json.dumps(value).encode()


# --- kinds of answer


@pytest.mark.parametrize(
    ("kind", "body", "content_type"),
    [
        ("bytes", b"\x00\xff", "application/octet-stream"),
        ("str", "grüße".encode(), "text/plain; charset=utf-8"),
        ("none", b"null", "application/json"),
        ("large", b"1180591620717411303424", "application/json"),
        ("decimal", b'"1.10"', "application/json"),
        ("datetime", b'"2026-01-02T03:04:05+00:00"', "application/json"),
        ("dataclass", b'{"name":"tea","price":"2.50"}', "application/json"),
        ("generator", b"ab", "text/plain; charset=utf-8"),
        ("largest", b"x" * 1024 * 1024, "text/plain; charset=utf-8"),
    ],
)
async def test_answers(python: Client, kind: str, body: bytes, content_type: str) -> None:
    function = await python.register("answers", "main.handler")
    answer = await function.invoke(event(kind))
    assert (answer.output, answer.content_type) == (body, content_type)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("nan", "$.a[0] is nan"),
        ("surrogate", "$.s holds a lone surrogate"),
        ("set", "$.items[1] is a set"),
        ("cycle", "$[0] contains itself"),
        ("too large", "the answer has 1048577 bytes"),
    ],
)
async def test_answers_without_a_form_name_the_path(python: Client, kind: str, says: str) -> None:
    function = await python.register("answers", "main.handler")
    failure = await function.fails(event(kind))
    assert (failure.code, failure.reason, failure.type) == ("UNKNOWN", "FunctionError", "Unencodable")
    assert says in failure.message
    assert await function.output(event("none")) == b"null"


async def test_input_content_types_and_outputs(python: Client) -> None:
    function = await python.register("answers", "main.echo")
    for payload, content_type, kind in [
        (b'{"a":1}', "application/json", "dict"),
        (b"\x00\xff\n", "application/octet-stream", "bytes"),
        (b'{"a":1}', "text/plain", "bytes"),
        (b"", "", "NoneType"),
    ]:
        answer = await function.invoke(payload, content_type=content_type)
        assert answer.outputs["type"] == kind
        if kind != "NoneType":
            assert answer.output == payload
    failure = await function.fails(b"{", content_type="application/json")
    assert (failure.code, failure.reason) == ("INVALID_ARGUMENT", "BadInput")
    large = b"FUNCTION_PAYLOAD_END\nQUIT\n" * 40_000
    assert await function.output(large, content_type="application/octet-stream") == large


async def test_context_and_a_content_type_of_ones_own(python: Client) -> None:
    function = await python.register("answers", "main.about", attempt=3)
    assert json.loads(await function.output(invocation_id="a/b=c\"'")) == {
        "id": "a/b=c\"'", "attempt": 3, "type": "application/json", "time": True, "cancelled": False,
    }  # fmt: skip
    html = await python.register("answers", "main.html")
    assert (await html.invoke()).content_type == "text/html"


async def test_outputs_have_bounds(python: Client) -> None:
    function = await python.register("answers", "main.outputs")
    answer = await function.invoke(event({"k": "v" * 8192, "é": "\n"}))
    assert answer.outputs == {"k": "v" * 8192, "é": "\n"}
    failure = await function.fails(event({"k": "v" * 8193}))
    assert (failure.code, failure.type) == ("UNKNOWN", "kruntimes.runtime.bounds.OutputsError")
    assert "'k'" in failure.message


# --- output that is not the answer


async def test_progress_without_newlines(python: Client, python_server: Server) -> None:
    function = await python.register("progress", "main.handler")
    assert await function.output() == b"drawn"
    uid = function.registration.run_uid
    lines = [json.loads(line) for line in python_server.text().splitlines()]
    mine = [line["line"] for line in lines if line.get("run_uid") == uid and "line" in line]
    assert mine == ["49999 %", "drawn"]


@pytest.mark.parametrize("handler", ["bytes_200_mb", "one_long_line"])
async def test_floods(python: Client, python_server: Server, handler: str) -> None:
    function = await python.register("floods", f"main.{handler}")
    assert await function.output() == b"intact"
    await function.unregister()
    peak = Path(f"/proc/{python_server.process.pid}/status").read_text()
    kilobytes = int(next(line for line in peak.splitlines() if line.startswith("VmHWM")).split()[1])
    assert kilobytes < 250_000
    uid = function.registration.run_uid
    await until(
        lambda: any(uid in line and ("the last line" in line or "suppressed" in line)
                    for line in python_server.text().splitlines()),
        "the flood left no trace",
    )  # fmt: skip


async def test_writing_to_descriptor_1_changes_nothing(python: Client, python_server: Server) -> None:
    function = await python.register("writes_descriptor", "main.handler")
    assert await function.output(event("e")) == b'{"event":"e"}'
    uid = function.registration.run_uid
    log = "\n".join(line for line in python_server.text().splitlines() if uid in line)
    for text in ("FUNCTION_RESULT_BEGIN c1 200", "QUIT", "from C", "from a child", "printed", "original"):
        assert text in log


@pytest.mark.parametrize(("handler", "body"), [("guesses", b"honest"), ("closes", b"still here")])
async def test_other_descriptors_do_not_reach_the_answer(python: Client, handler: str, body: bytes) -> None:
    function = await python.register("writes_descriptor", f"main.{handler}")
    assert await function.output() == body
    assert await function.output() == body


async def test_a_handler_without_standard_streams(python: Client) -> None:
    function = await python.register("writes_descriptor", "main.replaces_stdout")
    assert await function.output() == b"quiet"
    assert await function.output() == b"quiet"


# --- handlers that leave


@pytest.mark.parametrize(
    ("handler", "error_type", "says"),
    [
        ("exit_0", "SystemExit", "sys.exit(0) was called"),
        ("exit_3", "SystemExit", "sys.exit(3) was called"),
        ("hard_exit_0", "ProcessEnded", "exited with status 0"),
        ("hard_exit_5", "ProcessEnded", "exited with status 5"),
        ("from_a_thread", "ProcessEnded", "exited with status 0"),
        ("segfault", "ProcessEnded", "signal 11 (SIGSEGV)"),
        ("killed", "ProcessEnded", "signal 9 (SIGKILL)"),
        ("memory", "MemoryError", ""),
        ("interrupts", "KeyboardInterrupt", ""),
        ("raises_unprintable", "main.Unprintable", "no readable text"),
        ("raises", "LookupError", "nothing for None in 1"),
    ],
)
async def test_leaving_is_an_error_and_the_next_call_works(
    python: Client, handler: str, error_type: str, says: str
) -> None:
    function = await python.register("leaves", f"main.{handler}")
    for _ in range(2):
        failure = await function.fails()
        assert (failure.code, failure.reason, failure.type) == ("UNKNOWN", "FunctionError", error_type)
        assert says in failure.message
    status = await function.status()
    assert (status.in_flight, status.fatal_error) == (0, "")
    if handler == "raises":
        assert "line " in failure.metadata["traceback"]
        assert "main.py" in failure.metadata["traceback"]
        assert "kruntimes/runtime" not in failure.metadata["traceback"]


async def test_a_fork_that_returns_answers_once(python: Client) -> None:
    function = await python.register("leaves", "main.forks_and_returns")
    for _ in range(5):
        assert await function.output() == b"once"


# --- handlers that leave something behind


@pytest.mark.parametrize("handler", ["grandchild", "short_thread", "pool", "task", "everything"])
async def test_what_is_left_behind_delays_no_answer_and_does_not_accumulate(
    python: Client, python_server: Server, handler: str
) -> None:
    function = await python.register("leaves_behind", f"main.{handler}")
    await function.output()
    own = 3 if python.isolation == WORKER else 4  # the child that is made ahead
    await until(lambda: len(python_server.processes()) <= own, "processes stay")
    for _ in range(20):
        assert await function.output(millis=5000) == (b"[1,2]" if handler == "pool" else b"left")
    await until(lambda: len(python_server.processes()) <= own, "processes accumulate")
    await until(lambda: not python_server.zombies(), "zombies stay")


async def test_too_many_threads_left_replace_the_process(python: Client) -> None:
    function = await python.register("leaves_behind", "main.endless_thread")
    pids = [int(await function.output()) for _ in range(80)]
    assert len(set(pids)) == (2 if python.isolation == WORKER else 80)


async def test_processes_of_the_module_itself_stay(python: Client) -> None:
    function = await python.register("keeps_child", "main.handler")
    for _ in range(3):
        assert await function.output() == b"through the helper"


# --- handlers that never end


@pytest.mark.parametrize(
    ("handler", "stage"),
    [
        ("sleep", "term"), ("asks", "term"), ("busy", "term"), ("ignores_sigterm", "kill"), ("swallows", "kill"),
        ("with_children", "term"), ("tidies", "term"), ("awaits", "ask"), ("cooperates", "ask"),
    ],
)  # fmt: skip
async def test_the_deadline_ends_everything(python: Client, python_server: Server, handler: str, stage: str) -> None:
    function = await python.register("never_ends", f"main.{handler}")
    for _ in range(TRIES):
        await until(lambda: list(filter(_is_host, python_server.processes())), "there is no host")
        hosts = list(filter(_is_host, python_server.processes()))
        failure = await function.fails(millis=300)
        assert (failure.code, failure.reason) == ("DEADLINE_EXCEEDED", "DeadlineExceeded")
        if failure.metadata["stage"] == stage:
            break
    assert failure.metadata["stage"] == stage
    if stage != "ask":
        assert not any(map(alive, hosts))
    assert not [pid for pid in python_server.processes() if _cmdline(pid).startswith(b"sleep\0")]
    status = await function.status()
    assert status.in_flight == 0
    # The slot is free, and the function's next call runs.
    assert (await function.fails(millis=100)).code == "DEADLINE_EXCEEDED"
    text = python_server.text()
    if handler == "tidies":
        assert "tidied up" in text
    if handler == "awaits":
        assert "cancelled inside" in text


async def test_a_child_that_reads_its_input_goes_on(python: Client) -> None:
    function = await python.register("never_ends", "main.reads_in_a_child")
    assert await function.output() == b"nothing"


# --- coroutines


async def test_coroutines(python: Client) -> None:
    gathers = await python.register("asynchronous", "main.gathers")
    for _ in range(2):
        assert json.loads(await gathers.output()) == list(range(10))
    own = await python.register("asynchronous", "main.runs_its_own")
    for _ in range(2):
        assert await own.output() == b"inner"
    streams = await python.register("asynchronous", "main.streams")
    assert await streams.output() == b"abc"
    assert (await (await python.register("asynchronous", "main.fails")).fails()).type == "ValueError"
    assert (await (await python.register("asynchronous", "main.exits")).fails()).type == "SystemExit"


# --- state


async def test_a_warm_process_keeps_globals_and_a_fork_or_a_new_registration_starts_afresh(python: Client) -> None:
    for handler in ("counter", "default"):
        function = await python.register("globals", f"main.{handler}")
        expected = [b"1", b"2", b"3"] if python.isolation == WORKER else [b"1", b"1", b"1"]
        assert [await function.output() for _ in range(3)] == expected
        again = await python.register("globals", f"main.{handler}")
        assert await again.output() == b"1"


async def test_environment_and_place(python: Client) -> None:
    function = await python.register("globals", "main.environment", env={"GREETING": "hallo"})
    assert await function.output(event("GREETING")) == b"hallo"
    assert await function.output(event("FROM_THE_CONTAINER")) == b"yes"
    assert await function.output(event("KRUNTIMES_EXECUTOR_SOCKET")) == b"null"
    where = await python.register("globals", "main.where")
    folder, file, name, argument, main = json.loads(await where.output())
    assert (folder + "/main.py", name, argument, main) == (file, "main", "main.where", "__main__")


# --- imports


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("syntax_error.handler", ["SyntaxError", "(syntax_error.py, line 4)"]),
        ("missing.handler", ["ModuleNotFoundError", "does_not_exist_anywhere", "(missing.py, line 3)"]),
        ("raises.handler", ["RuntimeError: not today", "(helper.py, line 5)"]),
        ("exits.handler", ["SystemExit", "sys.exit(1) was called while the module was imported", "(exits.py, line 6)"]),
        ("dies.handler", ["exited with status 9 while it was initialised", "a last word"]),
        ("absent.handler", ["ModuleNotFoundError", "'absent'"]),
        ("prints.absent", ["AttributeError", "'absent'"]),
        ("prints.NOT_CALLABLE", ["TypeError", "cannot be called"]),
    ],
)
async def test_imports_that_fail(python: Client, handler: str, says: list[str]) -> None:
    function = await python.register("imports", handler, expect=FAILED)
    status = await function.status()
    for text in says:
        assert text in status.fatal_error
    assert len(status.fatal_error.encode()) <= 4096
    failure = await function.fails()
    assert (failure.code, failure.reason) == ("FAILED_PRECONDITION", "RegistrationFailed")
    await function.unregister()


async def test_imports_that_print_or_shadow_are_fine(python: Client) -> None:
    assert await (await python.register("imports", "prints.handler")).output() == b"ready"
    assert await (await python.register("imports", "json.handler")).output() == b"mine"


async def test_code_replaced(python: Client, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old" / "main.py").write_text("def handler(event): return 'old'")
    (tmp_path / "new" / "main.py").write_text("def handler(event): return 'new'")
    old = await python.register(tmp_path / "old", "main.handler")
    assert await old.output() == b"old"
    await old.unregister()
    new = await python.register(tmp_path / "new", "main.handler")
    assert await new.output() == b"new"
    assert (await old.fails()).code == "NOT_FOUND"


async def test_three_hundred_calls_at_once_over_fifty_functions(python: Client) -> None:
    functions = await asyncio.gather(*(python.register("globals", "main.counter") for _ in range(50)))

    async def call(number: int) -> str:
        call = functions[number % 50].call()
        return str((await call.code()).name)

    codes = await asyncio.gather(*(call(number) for number in range(300)))
    assert set(codes) <= {"OK", "RESOURCE_EXHAUSTED"}
    for function in functions:
        assert int(await function.output()) >= 1
        await function.unregister()


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _is_host(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("kr-python-host")
    except (FileNotFoundError, ProcessLookupError):
        return False
