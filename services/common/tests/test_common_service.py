"""The start and the end of a service, as a process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
LIMIT_SECONDS = 30.0

PRELUDE = """
import asyncio, logging, os, signal, sys
from kruntimes.common import service
from kruntimes.common.api.settings import SettingsError

log = logging.getLogger("test")
"""


def _start(body: str, **environment: str) -> subprocess.Popen[str]:
    """Runs *body*, which defines `run`, under `service.main`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KRUNTIMES_")}
    return subprocess.Popen(
        [sys.executable, "-c", f"{PRELUDE}{body}\nservice.main('test', run, clean_up_seconds=1.0)"],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, errors


def _lines(errors: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in errors.splitlines()]


@pytest.mark.parametrize(
    ("body", "environment", "sentence"),
    [
        pytest.param("run = None", {"KRUNTIMES_NONSENSE": "1"}, "KRUNTIMES_NONSENSE", id="unknown-setting"),
        pytest.param("run = None", {"KRUNTIMES_LOG_LEVEL": "loud"}, "KRUNTIMES_LOG_LEVEL", id="wrong-level"),
        pytest.param("async def run(s): s.require('pod_uid')", {}, "KRUNTIMES_POD_UID", id="missing-setting"),
        pytest.param(
            "async def run(s):\n async with asyncio.TaskGroup() as g: g.create_task(one())\n"
            "async def one(): raise SettingsError('deep inside')",
            {},
            "deep inside",
            id="in-a-task-group",
        ),
    ],
)
def test_wrong_settings_end_with_a_sentence_and_78(body: str, environment: dict[str, str], sentence: str) -> None:
    status, errors = _end(_start(body, **environment))
    assert status == 78
    assert sentence in errors
    assert len(errors.splitlines()) == 1
    assert errors.startswith("test: ")


WAITS = """
async def run(settings):
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        log.info("cleaned up", extra={"run_uid": settings.pod_uid})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_cancels_and_clean_up_runs(number: signal.Signals) -> None:
    process = _start(WAITS, KRUNTIMES_POD_UID="uid-1")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    status, errors = _end(process)
    assert status == 0
    assert [(line["message"], line["component"]) for line in _lines(errors)] == [
        ("stopping", "test"),
        ("cleaned up", "test"),
    ]
    assert _lines(errors)[1]["run_uid"] == "uid-1"


STUBBORN = """
async def run(settings):
    print("ready", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("refused", flush=True)
"""


def test_clean_up_is_bounded() -> None:
    process = _start(STUBBORN)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    status, errors = _end(process)
    assert status == 1
    assert _lines(errors)[-1]["message"] == "clean-up did not end in time"


def test_a_second_signal_ends_at_once() -> None:
    process = _start(STUBBORN.replace("clean_up", "x"))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.stdout.readline() == "refused\n"
    process.terminate()
    status, errors = _end(process)
    assert status == 1
    assert _lines(errors)[-1]["message"] == "a second signal, ending at once"


def test_an_error_is_told_with_its_cause_and_1() -> None:
    body = "async def run(s):\n async with asyncio.TaskGroup() as g: g.create_task(one())\nasync def one(): 1 / 0"
    status, errors = _end(_start(body))
    assert status == 1
    [line] = _lines(errors)
    assert line["level"] == "critical"
    assert line["traceback"].rstrip().endswith("ZeroDivisionError: division by zero")


def test_a_service_that_returns_ends_well() -> None:
    assert _end(_start("async def run(s): return None"))[0] == 0
