"""A host is woken by what arrives for it, and by nothing else."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from kruntimes.functions.wire.encode import encode_call
from kruntimes.functions.wire.events import Call, Mode

CALLS = 20
LIMIT_SECONDS = 30.0
HOST = """
import socket, sys
from kruntimes.runtime.host.serve import Answer, serve

class Echo:
    def initialise(self, config): raise AssertionError
    def begin(self, call, report): pass
    def invoke(self, call): return Answer(200, call.payload, "")
    def ask(self): pass
    def tidy(self): pass

serve(socket.socket(fileno=int(sys.argv[1])), Echo())
"""


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def waits_of(pid: int) -> int:
    """How often the process has gone to sleep, once it sleeps."""
    end = time.monotonic() + LIMIT_SECONDS
    while not (found := status(pid))["State"].startswith("S"):
        assert time.monotonic() < end, "the host does not wait for its next call"
        os.sched_yield()
    return int(found["voluntary_ctxt_switches"])


def test_a_host_is_not_woken_when_its_answer_is_taken() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT_SECONDS)
    with ours, subprocess.Popen([sys.executable, "-c", HOST, str(theirs.fileno())], pass_fds=[theirs.fileno()]) as host:
        theirs.close()
        began = 0
        for number in range(CALLS + 1):
            ours.sendall(encode_call(Call(uid=f"c{number}", timeout=1, function="f", payload=b"x"), Mode.LINK))
            assert ours.recv(1, socket.MSG_PEEK), "its answer lies in the link"
            before = waits_of(host.pid)
            assert b"FUNCTION_RESULT_END" in ours.recv(65536)
            began = began or before
        waits = waits_of(host.pid) - began
        ours.close()
        assert host.wait(LIMIT_SECONDS) == 0
    assert waits < CALLS * 1.5
