"""A function's output: bounded in memory, bounded in rate, and its last words kept."""

from hypothesis import given
from hypothesis import strategies as st

from kruntimes.runtime.logtail import BURST_LINES, CUT, LINE_BYTES, LineForwarder, LogTail


def test_the_tail_keeps_the_end_and_says_how_much_is_missing() -> None:
    tail = LogTail(10)
    tail.feed(b"0123456789")
    assert tail.text() == "0123456789"
    tail.feed(b"ab")
    assert tail.text() == "[2 bytes before this are not kept]\n23456789ab"
    tail.feed(b"x" * 1000 + b"the end")
    assert tail.text() == "[1009 bytes before this are not kept]\nxxxthe end"
    tail.clear()
    assert tail.text() == ""


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_the_tail_is_the_end_of_all_that_was_fed(chunks: list[bytes]) -> None:
    tail = LogTail(16)
    for chunk in chunks:
        tail.feed(chunk)
    everything = b"".join(chunks)
    assert bytes(tail._kept) == everything[-16:]
    assert tail._dropped == max(0, len(everything) - 16)


def test_lines_come_whole_however_they_arrive() -> None:
    forwarder = LineForwarder(0.0)
    assert forwarder.feed(b"one\ntw", 0.0).lines == ("one",)
    assert forwarder.feed(b"o\r\nthree", 0.0).lines == ("two",)
    assert forwarder.flush().lines == ("three",)
    assert forwarder.flush().lines == ()


def test_a_carriage_return_begins_the_line_anew() -> None:
    forwarder = LineForwarder(0.0)
    for number in range(50_000):
        assert forwarder.feed(b"\r%d %%" % number, 0.0).lines == ()
        assert len(forwarder._line) < 100
    assert forwarder.feed(b"\rdone\nlater\n", 0.0).lines == ("done", "later")


@given(st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", b"\r\n", b"x" * 9000]), max_size=20), st.integers(1, 7))
def test_cutting_never_changes_the_lines(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    whole, pieces = LineForwarder(0.0), LineForwarder(0.0)
    expected = whole.feed(data, 0.0).lines + whole.flush().lines
    got: tuple[str, ...] = ()
    for at in range(0, len(data), size * 1000 if len(data) > 1000 else size):
        got += pieces.feed(data[at : at + (size * 1000 if len(data) > 1000 else size)], 0.0).lines
    assert got + pieces.flush().lines == expected


def test_a_long_line_is_cut_with_a_mark() -> None:
    forwarder = LineForwarder(0.0)
    for _ in range(160):
        forwarder.feed(b"x" * 65536, 0.0)
        assert len(forwarder._line) <= LINE_BYTES
    (line,) = forwarder.feed(b"end\n", 0.0).lines
    assert line == "x" * LINE_BYTES + CUT
    (line,) = forwarder.feed(b"y" * 100_000 + b"\n", 1.0).lines
    assert line == "y" * LINE_BYTES + CUT


def test_a_flood_is_counted_and_later_lines_appear() -> None:
    forwarder = LineForwarder(0.0)
    flood = forwarder.feed(b"spam\n" * 10_000, 0.0)
    assert len(flood.lines) == BURST_LINES
    assert flood.suppressed == 0
    assert forwarder.feed(b"spam\n" * 5, 0.0).lines == ()
    later = forwarder.feed(b"ham\n", 10.0)
    assert later.lines == ("ham",)
    assert later.suppressed == 10_000 - BURST_LINES + 5
