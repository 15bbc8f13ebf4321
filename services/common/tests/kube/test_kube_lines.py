"""Lines come out whole, however the bytes came in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.kube.lines import Lines, LineTooLong


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b and b.strip())), st.data())
def test_any_cut_of_the_stream_gives_the_same_lines(expected: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in expected)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    splitter, found = Lines(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += splitter.feed(stream[start:end])
    assert found == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([b"a\nb"], [b"a"], id="what-is-left-over-is-not-a-line"),
        pytest.param([b"\n \n\r\na\n"], [b"a"], id="blank-lines-are-left-out"),
        pytest.param(["a\u2028b\n".encode()], ["a\u2028b".encode()], id="other-line-ends-are-content"),
        pytest.param([b"x" * 3_000_000, b"\n"], [b"x" * 3_000_000], id="three-megabytes"),
    ],
)
def test_lines(pieces: list[bytes], expected: list[bytes]) -> None:
    splitter = Lines()
    assert [line for piece in pieces for line in splitter.feed(piece)] == expected


@pytest.mark.parametrize(
    ("before", "piece"), [(b"ok\n", b"x" * 11), (b"x" * 6, b"x" * 5), (b"x", b"ok\n" + b"x" * 11)], ids=str
)
def test_a_line_beyond_the_bound_is_refused(before: bytes, piece: bytes) -> None:
    splitter = Lines(limit=10)
    splitter.feed(before)
    with pytest.raises(LineTooLong):
        splitter.feed(piece)
