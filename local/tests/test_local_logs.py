"""What `kubectl logs` and its options get of a container's log, and how it is known when a line was written."""

import asyncio
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kruntimes.local.node import log_options, logs, shim
from kruntimes.local.node.log_options import NANOS, BadOptions, Lines, LogOptions, parse
from kruntimes.local.node.log_times import Times
from kruntimes.local.node.process import Exit, Process

NOW = 1_800_000_000.0
MOMENT = 1_767_323_045 * NANOS
"""2026-01-02T03:04:05Z."""
LIMIT = 20.0


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, LogOptions(), id="nothing"),
        pytest.param({"follow": "true", "tailLines": "0"}, LogOptions(follow=True, tail=0), id="follow"),
        pytest.param({"timestamps": "", "previous": "1"}, LogOptions(timestamps=True, previous=True), id="flags"),
        pytest.param({"timestamps": "False", "follow": "0"}, LogOptions(), id="flags-that-are-off"),
        pytest.param({"sinceSeconds": "10"}, LogOptions(since=1_799_999_990 * NANOS), id="since-seconds"),
        pytest.param({"sinceSeconds": "9999999999"}, LogOptions(since=0), id="since-before-1970"),
        pytest.param({"sinceTime": "2026-01-02T03:04:05Z"}, LogOptions(since=MOMENT), id="since-time"),
        pytest.param({"sinceTime": "2026-01-02T05:04:05.5+02:00"}, LogOptions(since=MOMENT + NANOS // 2), id="zone"),
        pytest.param({"limitBytes": "20"}, LogOptions(limit=20), id="limit"),
    ],
)
def test_a_query_is_read_as_kubelet_reads_it(query: Mapping[str, str], expected: LogOptions) -> None:
    assert parse(query, now=NOW) == expected


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        pytest.param({"tailLines": "x"}, 400, "tailLines: not a whole number", id="not-a-number"),
        pytest.param({"tailLines": "-1"}, 422, "tailLines: Invalid value: -1: must be greater", id="negative"),
        pytest.param({"limitBytes": "0"}, 422, "limitBytes: Invalid value: 0", id="no-bytes"),
        pytest.param({"sinceSeconds": "0"}, 422, "sinceSeconds: Invalid value: 0", id="no-seconds"),
        pytest.param({"sinceTime": "yesterday"}, 400, "sinceTime: not a time", id="not-a-time"),
        pytest.param({"sinceTime": "2026-01-02T03:04:05"}, 400, "sinceTime: not a time", id="no-zone"),
        pytest.param({"sinceTime": "2026-01-02T03:04:05Z", "sinceSeconds": "1"}, 422, "at most one of", id="both"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: Mapping[str, str], status: int, said: str) -> None:
    with pytest.raises(BadOptions, match=said) as refused:
        parse(query, now=NOW)
    assert refused.value.status == status


LOG = b"one\ntwo\n\nfour"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(LogOptions(), LOG, id="all"),
        pytest.param(LogOptions(limit=5), b"one\nt", id="limit"),
        pytest.param(LogOptions(since=4), b"two\n\nfour", id="since"),
        pytest.param(LogOptions(since=5), b"\nfour", id="since-the-middle-of-a-line"),
        pytest.param(LogOptions(since=99), b"", id="since-later"),
        pytest.param(
            LogOptions(since=8, timestamps=True),
            b"1970-01-01T00:00:00.000000008Z \n1970-01-01T00:00:00.000000009Z four",
            id="timestamps",
        ),
        pytest.param(LogOptions(since=8, timestamps=True, limit=12), b"1970-01-01T0", id="limit-counts-what-is-sent"),
    ],
)
def test_what_is_sent_does_not_depend_on_how_it_was_read(options: LogOptions, expected: bytes, size: int) -> None:
    lines = Lines(options)
    sent = b"".join(
        lines.take(LOG[at : at + size], at=at, written=lambda offset: offset) for at in range(0, len(LOG), size)
    )
    assert sent == expected
    assert lines.full is (options.limit is not None)


def test_a_time_is_written_as_kubelet_writes_it() -> None:
    assert log_options.stamp(MOMENT + 120) == "2026-01-02T03:04:05.000000120Z"


def test_the_shim_writes_down_when_and_the_reader_finds_it_over_a_turned_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(100, 900, 100))
    monkeypatch.setattr(shim.time, "time_ns", lambda: next(moments))
    file = tmp_path / "log"
    log = shim.Log(str(file), 10)
    log.write(b"1234\n")
    log.write(b"56\n")
    opened = logs._Open(file)
    log.write(b"789\n")
    log.write(b"0\n")
    os.close(log.fd)
    os.close(log.times)
    both = Lines(LogOptions(timestamps=True))
    old = opened.read(both)
    opened.close()
    assert old == b"1970-01-01T00:00:00.000000100Z 1234\n1970-01-01T00:00:00.000000200Z 56\n"
    fresh = logs._Open(file)
    assert fresh.read(both) == b"1970-01-01T00:00:00.000000300Z 789\n1970-01-01T00:00:00.000000400Z 0\n"
    assert fresh.read(both) is None
    fresh.close()
    turned = Times(file, inode=(tmp_path / "log.1").stat().st_ino)
    turned.read()
    assert [turned.at(0), turned.at(5), turned.at(7)] == [100, 200, 200]
    turned.close()


def test_times_are_bounded_and_those_of_another_log_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, beside = tmp_path / "log", tmp_path / "log.times"
    file.write_bytes(b"old\n")
    beside.write_bytes(struct.pack("<QQQQ", 1, 0, 0, 5))
    other = Times(file, inode=file.stat().st_ino)
    other.read()
    assert other.at(0) == 0
    monkeypatch.setattr(shim, "TIMES_BYTES", 48)
    log = shim.Log(str(file), 1000)
    assert beside.read_bytes() == struct.pack("<QQ", file.stat().st_ino, 0)
    for _ in range(3):
        log.write(b"x\n")
    os.close(log.fd)
    os.close(log.times)
    assert (tmp_path / "log.1").read_bytes() == b"old\nx\nx\n"
    assert file.read_bytes() == b"x\n"


class Caller:
    """Whoever reads a log, as far as its bytes go."""

    def __init__(self) -> None:
        self.got = b""
        self.more = asyncio.Event()

    async def write(self, data: bytes) -> None:
        self.got += data
        self.more.set()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(LIMIT):
            while text not in self.got:
                self.more.clear()
                await self.more.wait()


async def test_a_log_is_followed_with_its_options_over_a_turn(tmp_path: Path) -> None:
    file, go = tmp_path / "log", tmp_path / "go"
    process = await Process.start(
        command=["sh", "-c", f"echo early; until test -e {go}; do sleep 0.02; done; echo late; echo last"],
        env={"PATH": os.environ["PATH"]}, cwd=tmp_path, log=file,
    )  # fmt: skip
    caller, limited, future = Caller(), Caller(), Caller()

    def copy(to: Caller, options: LogOptions) -> Any:
        return logs._copy(file, to, start=0, options=options)  # type: ignore[arg-type]

    async with asyncio.timeout(LIMIT):
        while "early" not in file.read_text():
            await asyncio.sleep(0.02)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(copy(caller, LogOptions(follow=True, timestamps=True)))
        group.create_task(copy(limited, LogOptions(follow=True, limit=8)))
        none = group.create_task(copy(future, LogOptions(follow=True, since=2**62)))
        await caller.until(b"early\n")
        go.touch()
        assert await process.wait() == Exit(0)
        await caller.until(b"last\n")
        second = shim.Log(str(file), 1)
        second.write(b"after the turn\n")
        os.close(second.fd)
        os.close(second.times)
        await caller.until(b"after the turn\n")
        following.cancel()
        none.cancel()
    stamps, said = zip(*(line.split(b" ", 1) for line in caller.got.splitlines()), strict=True)
    assert said == (b"early", b"late", b"last", b"after the turn")
    assert list(stamps) == sorted(stamps)
    assert all(stamp.startswith(b"20") and len(stamp) == 30 for stamp in stamps)
    assert limited.got == b"early\nla"
    assert future.got == b""
