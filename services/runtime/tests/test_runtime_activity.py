"""The idle clock outlives the Runtime Server's process, for the same attempt and digest only."""

import json
import os
from pathlib import Path

import pytest
from tests.runtime_process import FUNCTIONS, Server, connect, until

from kruntimes.runtime.activity import FILE, Activity, Clock, key_of
from kruntimes.runtime.registry import Wanted


def wanted(attempt: int = 1, digest: str = "0" * 64) -> Wanted:
    return Wanted(run_uid="u", attempt=attempt, digest=digest, handler="main.handler", working_dir="/w")


async def test_after_kill_9_of_the_server_the_clock_goes_on(tmp_path: Path) -> None:
    first = Server(tmp_path, "python")
    try:
        async with connect(first) as client:
            function = await client.register("globals", "main.counter", uid="u")
            await function.output()
            last = (await function.status()).last_activity_unix_nano
            await until(lambda: str(last) in _text(tmp_path), "the clock is not kept")
            client.forget_all()
        first.process.kill()
        first.process.wait()
        second = Server(tmp_path, "python")
        try:
            async with connect(second) as client:
                again = await client.register("globals", "main.counter", uid="u")
                assert (await again.status()).last_activity_unix_nano == last
                later = await client.register("globals", "main.counter", uid="u", attempt=2)
                assert (await later.status()).last_activity_unix_nano == 0
                await later.output()
                newest = (await later.status()).last_activity_unix_nano
                client.forget_all()
            assert second.stop() == 0
            assert list(json.loads(_text(tmp_path)).values()) == [newest]
        finally:
            second.process.kill()
    finally:
        first.process.kill()
        first.process.wait()


def _text(folder: Path) -> str:
    path = folder / FILE
    return path.read_text() if path.exists() else ""


def test_what_is_asked_for_is_given_once_and_never_lies_ahead(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({key_of(wanted()): 5, key_of(wanted(attempt=2)): 500}))
    activity = Activity(tmp_path)
    assert activity.take(wanted(digest="1" * 64), now_nanos=10) == 0
    assert activity.take(wanted(), now_nanos=10) == 5
    assert activity.take(wanted(), now_nanos=10) == 0
    assert activity.take(wanted(attempt=2), now_nanos=10) == 10


@pytest.mark.parametrize("text", ["", "[]", "{", '{"u/1/x": "7"}', '{"u/1/x": -1}', "[" * 100_000])
def test_a_file_that_is_not_ours_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert Activity(tmp_path).take(wanted(digest="x"), now_nanos=10) == 0


def test_a_link_or_a_pipe_in_its_place_says_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to(FUNCTIONS)
    assert Activity(tmp_path).take(wanted(), now_nanos=10) == 0
    (tmp_path / FILE).unlink()
    os.mkfifo(tmp_path / FILE)
    assert Activity(tmp_path).take(wanted(), now_nanos=10) == 0


def test_a_resumed_clock_goes_on_from_there_and_never_back() -> None:
    clock = Clock(100)
    clock.touch(50)
    assert clock.last_nanos == 100
    clock.touch(150)
    assert clock.last_nanos == 150
    assert Clock(0).last_nanos == 0
