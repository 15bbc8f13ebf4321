"""Reading the protobuf wire format: what comes out, and that nothing is read past the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.protobuf import Malformed, fields


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\x08\x96\x01", [(1, 150)], id="varint"),
        pytest.param(b"\x12\x03abc\x12\x00", [(2, b"abc"), (2, b"")], id="with-a-length"),
        pytest.param(b"\x1d\x01\x00\x00\x00", [(3, 1)], id="four-bytes"),
        pytest.param(b"\x19" + b"\xff" * 8, [(3, (1 << 64) - 1)], id="eight-bytes"),
        pytest.param(b"\x08" + b"\xff" * 9 + b"\x01", [(1, (1 << 64) - 1)], id="minus-one"),
    ],
)
def test_fields_in_order(data: bytes, expected: list[tuple[int, int | bytes]]) -> None:
    assert list(fields(data)) == expected


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"\x12\x7f", "cut short", id="longer-than-the-data"),
        pytest.param(b"\x1d\x01", "cut short", id="four-bytes-of-one"),
        pytest.param(b"\x08", "cut short", id="no-value"),
        pytest.param(b"\xff" * 11, "varint of more than ten bytes", id="endless"),
        pytest.param(b"\x0b", "wire type 3", id="group"),
        pytest.param(b"\x00\x00", "field number 0", id="no-field"),
    ],
)
def test_what_is_no_message(data: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        list(fields(data))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = list(fields(data))
    except Malformed:
        return
    assert all(number > 0 and (isinstance(value, bytes) or 0 <= value < 1 << 64) for number, value in found)
