"""`python -m kruntimes.functions` as agents use it: announcements, calls, answers, and its three ways to end."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.plugin_process import MODULE, WAIT, Plugin

from kruntimes.functions.plugin import Announcement

Start = Callable[..., Plugin]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    plugins: list[Plugin] = []

    def begin(*arguments: str) -> Plugin:
        plugins.append(Plugin(tmp_path, *arguments))
        return plugins[-1]

    yield begin
    for plugin in plugins:
        plugin.kill()


def results(plugin: Plugin) -> dict[str, tuple[int, bytes]]:
    """Every result frame, by its id; a second one of the same id fails."""
    found: dict[str, tuple[int, bytes]] = {}
    frames = re.findall(
        rb"^FUNCTION_RESULT_BEGIN (\S+) (\d+) \S+ \d+\n(.*?)\n?FUNCTION_RESULT_END\n\n", plugin.output, re.M | re.S
    )
    for uid, code, body in frames:
        assert uid.decode() not in found
        found[uid.decode()] = int(code), body
    return found


def test_functions_are_announced_called_and_answered(start: Start) -> None:
    plugin = start("1")
    plugin.wait_for(b'FUNCTION GLOBAL "echo" 7 "Says it again." "top" 0x0 100 0\n')
    plugin.send(b"FUNCTION_PAYLOAD t1 10 echo 0x0 src text/plain\n\x00a\n\nb \nFUNCTION_PAYLOAD_END\n")
    plugin.send(b'FUNCTION t2 10 "nowhere at all" 0x0 src\nFUNCTION t3 ten echo 0x0 src\nFUNCTION t4 1 gives-up 0 s\n')
    for uid in (b"t1", b"t2", b"t3", b"t4"):
        plugin.wait_for(b"RESULT_BEGIN " + uid)
    plugin.send(b"QUIT\nFUNCTION t5 10 echo 0 s\n")
    assert plugin.end() == 0
    found = results(plugin)
    assert found["t1"] == (200, b"\x00a\n\nb ")
    assert [found[uid][0] for uid in ("t2", "t3", "t4", "t5")] == [501, 400, 500, 503]


def test_what_functions_print_never_reaches_the_protocol(start: Start) -> None:
    plugin = start()
    plugin.send(b"FUNCTION t1 10 noise 0 s\nFUNCTION t2 10 ends-frame 0 s\n")
    plugin.wait_for(b"RESULT_BEGIN t2")
    assert plugin.end() == 0
    found = results(plugin)
    assert found["t1"] == (200, b"quiet")
    assert found["t2"][0] == 500, "a body that would end its own frame"
    assert b"RESULT_BEGIN x" not in plugin.output
    assert b"RESULT_BEGIN x" in plugin.errors


def test_control_input_is_served_while_the_queue_is_full(start: Start) -> None:
    plugin = start("--queue-size", "2")
    calls = [b"FUNCTION w%d 600 waits 0 s\n" % number for number in range(100)]
    plugin.send(b"".join(calls) + b"FUNCTION_CANCEL w0\nFUNCTION_CANCEL w50\nFUNCTION_PROGRESS w1\n")
    plugin.wait_for(b"RESULT_BEGIN w0 499")
    plugin.wait_for(b"RESULT_BEGIN w50 499")
    plugin.wait_for(b"FUNCTION_PROGRESS w1 1 2\n")
    plugin.signal(signal.SIGTERM)
    plugin.signal(signal.SIGINT)
    plugin.end(close=False)


@pytest.mark.parametrize("how", ["quit", "eof", "sigterm"])
def test_its_three_ends_are_one(start: Start, how: str) -> None:
    plugin = start("--workers", "2")
    plugin.send(b"FUNCTION t1 60 brief 0 s\nFUNCTION t2 60 brief 0 s\nFUNCTION t3 60 waits 0 s\n")
    plugin.wait_for(b"FUNCTION_PROGRESS t3")
    match how:
        case "quit":
            plugin.send(b"QUIT\n")
        case "eof":
            plugin.stdin.close()
        case "sigterm":
            plugin.signal(signal.SIGTERM)
    plugin.wait_for(b"RESULT_BEGIN t2 200")
    plugin.signal(signal.SIGINT)
    assert plugin.end(close=how != "eof") == 0
    found = results(plugin)
    assert [found[uid][0] for uid in ("t1", "t2", "t3")] == [200, 200, 499]


def test_work_that_cannot_be_ended_does_not_keep_the_process(start: Start) -> None:
    plugin = start()
    plugin.send(b"FUNCTION t1 1 stubborn 0 s\n")
    plugin.wait_for(b"RESULT_BEGIN t1 504")
    plugin.signal(signal.SIGTERM)
    plugin.signal(signal.SIGINT)
    assert plugin.end() == 1


def test_a_caller_that_goes_away_ends_it(start: Start) -> None:
    plugin = start()
    plugin.send(b"FUNCTION_PAYLOAD t1 10 echo 0 s t\nhalf")
    assert plugin.end() == 0
    assert results(plugin)["t1"][0] == 400


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        pytest.param(["--module", "json"], 78, b"marks no function", id="nothing-marked"),
        pytest.param(["--module", "no_such_module"], 78, b"no_such_module", id="no-module"),
        pytest.param(["--module", "json", "--workers", "0"], 2, b"workers", id="no-workers"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], status: int, says: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kruntimes.functions", *arguments], capture_output=True, stdin=subprocess.DEVNULL,
        timeout=WAIT, env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == status
    assert says in done.stderr


def test_an_announcement_is_one_line_that_agents_can_split() -> None:
    said = Announcement(name="a", help='say "x=y"\nand\\more', access=0x13)
    assert said.line() == b'FUNCTION GLOBAL "a" 60 "say \'x=y\' and/more" "top" 0x13 100 0\n'


def test_it_needs_nothing_of_the_rest() -> None:
    code = (
        "import sys, kruntimes.functions.__main__, kruntimes.functions.ingress\n"
        "others = ('grpc', 'aiohttp', 'kubernetes_asyncio', 'uvloop')\n"
        "print(*sorted(m for m in sys.modules if m.split('.')[0] in others\n"
        "      or m.startswith('kruntimes.') and not m.startswith(('kruntimes.functions', 'kruntimes.common'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=WAIT, text=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_a_caller_that_takes_no_answers_ends_it(tmp_path: Path) -> None:
    (tmp_path / "some_functions.py").write_text(MODULE)
    theirs, ours = os.pipe()
    plugin = subprocess.Popen(
        [sys.executable, "-m", "kruntimes.functions", "--module", "some_functions"], stdin=subprocess.PIPE, stdout=ours,
        stderr=subprocess.DEVNULL, cwd=tmp_path, env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    os.close(ours)
    try:
        while b'"gives-up"' not in os.read(theirs, 65536):
            continue
        os.close(theirs)
        assert plugin.stdin is not None
        plugin.stdin.write(b"FUNCTION t1 10 echo 0 s\n")
        plugin.stdin.flush()
        assert plugin.wait(WAIT) == 1, "answers were lost"
    finally:
        plugin.kill()
        plugin.communicate()
