"""Processes of the path that stop without dying: the caller gets an honest answer, soon after its own deadline.

Only where the Pods are processes of this machine, as under `krt dev`; elsewhere nobody here may stop them.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import Api, Gateway, check_error, eventually, path_of

PATIENCE_SECONDS = 60.0
"""Far above the deadline that the test asks for, far below the quarter of an hour that a route may take."""
ECHO = "def handler(event):\n    return event\n"


def runtimed_of(pod_uid: str) -> list[int]:
    """The process of a Pod's runtimed, and what holds it; skips where it is not one of ours."""
    found = []
    mark = f"KRUNTIMES_POD_UID={pod_uid}".encode()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"kruntimes.runtimed" in words and mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    if not found:
        pytest.skip("the Pod's processes are not this machine's, or not ours")
    return found


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """The processes neither run nor end meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_pod_that_has_stopped_is_a_time_out_and_not_safe_to_repeat(api: Api, gateway: Gateway) -> None:
    with api.function(ECHO) as run, gateway.client(timeout=PATIENCE_SECONDS) as client:
        path, headers = path_of(run), gateway.headers({"x-kruntime-timeout-ms": "200"})
        assert client.post(path, content=b"{}", headers=headers).status_code == 200
        with stopped(runtimed_of(run["status"]["assignedPodUID"])):
            answer = client.post(path, content=b"{}", headers=headers)
        check_error(answer, 504, "timeout", reason="DeadlineExceeded", component="envoy")
        eventually("served again", lambda: client.post(path, content=b"{}", headers=headers).status_code == 200)
