"""The reader and the writer of descriptors: one chunk at a time, whole frames, a bound on what is not taken."""

import asyncio
import os
from pathlib import Path

import pytest

from kruntimes.functions import stdio
from kruntimes.functions.stdio import Reader, Writer

WAIT = 20.0


async def test_one_chunk_is_read_at_a_time() -> None:
    theirs, ours = os.pipe()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    reader = Reader(theirs, chunks.put_nowait)
    os.write(ours, b"first")
    reader.start()
    async with asyncio.timeout(WAIT):
        assert await chunks.get() == b"first"
        os.write(ours, b"second")
        assert chunks.empty()
        reader.more()
        assert await chunks.get() == b"second"
        os.close(ours)
        reader.more()
        assert await chunks.get() == b""
    os.close(theirs)


async def test_a_file_can_be_read_and_written_as_well(tmp_path: Path) -> None:
    path = tmp_path / "calls"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    writer = Writer(fd, lambda: None)
    for number in range(1000):
        writer.write(b"%d\n" % number)
    assert await asyncio.to_thread(writer.close, WAIT)
    assert path.read_bytes() == b"".join(b"%d\n" % number for number in range(1000))
    os.lseek(fd, 0, os.SEEK_SET)
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    reader = Reader(fd, chunks.put_nowait)
    reader.start()
    async with asyncio.timeout(WAIT):
        assert await chunks.get() == path.read_bytes()
        reader.more()
        assert await chunks.get() == b""
    os.close(fd)


async def test_what_is_not_taken_is_told_and_so_is_that_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "UNWRITTEN_BYTES", 1_000_000)
    theirs, ours = os.pipe()
    changed = asyncio.Event()
    writer = Writer(ours, changed.set)
    frame = b"x" * 400_000
    for _ in range(5):
        writer.write(frame)
    assert writer.full
    assert not changed.is_set()
    taken = 0
    while taken < 5 * len(frame):
        taken += len(await asyncio.to_thread(os.read, theirs, 1 << 20))
    async with asyncio.timeout(WAIT):
        await changed.wait()
    assert not writer.full
    assert await asyncio.to_thread(writer.close, WAIT)
    os.close(theirs)
    os.close(ours)


async def test_a_broken_stream_takes_nothing_more() -> None:
    theirs, ours = os.pipe()
    changed = asyncio.Event()
    writer = Writer(ours, changed.set)
    os.close(theirs)
    writer.write(b"lost")
    async with asyncio.timeout(WAIT):
        await changed.wait()
    assert writer.broken
    writer.write(b"more")
    assert writer.unwritten == 0
    assert not await asyncio.to_thread(writer.close, WAIT)
    os.close(ours)
