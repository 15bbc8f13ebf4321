"""Whatever arrives, however it is cut: the same events, no exception, nothing held beyond the limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import fuzz_wire

from kruntimes.functions.wire import commands, fields
from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.encode import NotEncodable, encode_call, encode_result
from kruntimes.functions.wire.events import Call, CallEvent, Mode, Result
from kruntimes.functions.wire.fields import FieldError, quote, split
from kruntimes.functions.wire.invocations import forwarded_frame, invocation_call, invocation_frame, invocation_id_of
from kruntimes.functions.wire.limits import WireLimits
from kruntimes.functions.wire.results import ResultDecoder

LIMITS = WireLimits(line=80, payload=60, body=60, meta=30, skip=200)

PIECES = st.sampled_from(
    [
        b"FUNCTION tx1 10 fn 0 s\n",
        b"FUNCTION_PAYLOAD tx2 5 'a b' 0 s text/plain\n",
        b"FUNCTION_PAYLOAD tx3 x a 0 s\n",
        b'FUNCTION_PAYLOAD tx4 5 "a len=7" 0 s t\n',
        b'FUNCTION_PAYLOAD tx5 5 "a len=90" 0 s t\n',
        b"FUNCTION_PAYLOAD_END\n",
        b"FUNCTION_PAYLOAD_END\r\n",
        b"FUNCTION_CANCEL tx2\n",
        b"FUNCTION_CANCEL\n",
        b"FUNCTION_PROGRESS tx1 1 2\n",
        b"FUNCTION_X\n",
        b"FUNCTION\n",
        b"QUIT\n",
        b"QUIT",
        b"body\n",
        b"\r\n",
        b"\n",
        b" ",
        b'"',
        b"x" * 90,
        b"\xff\x00",
        b"FUNCTION_RESULT_BEGIN t 200 a 0 meta=1 len=2\n",
        b"abc\nFUNCTION_RESULT_END\n",
    ]
)
STREAM = st.lists(st.one_of(PIECES, st.binary(max_size=12)), max_size=14).map(b"".join)
CUTS = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        chunks.append(data[at : at + size])
        at += size
        turn += 1
    return chunks


@given(mode=st.sampled_from(Mode), data=STREAM, sizes=CUTS)
@settings(max_examples=400, deadline=None)
def test_cutting_never_changes_the_calls(mode: Mode, data: bytes, sizes: list[int]) -> None:
    whole, pieces = CallDecoder(mode, LIMITS), CallDecoder(mode, LIMITS)
    expected: list[CallEvent] = [*whole.feed(data), *whole.eof()]
    got: list[CallEvent] = []
    for chunk in cut(data, sizes):
        got += pieces.feed(chunk)
        held = len(pieces._inbox) + len(pieces._body)
        assert held <= LIMITS.line + LIMITS.payload + 200
    assert [*got, *pieces.eof()] == expected


@given(data=STREAM, sizes=CUTS)
@settings(max_examples=200, deadline=None)
def test_cutting_never_changes_the_results(data: bytes, sizes: list[int]) -> None:
    pieces = ResultDecoder(LIMITS)
    assert [event for chunk in cut(data, sizes) for event in pieces.feed(chunk)] == ResultDecoder(LIMITS).feed(data)


@pytest.mark.parametrize("seed", range(4))
def test_a_few_thousand_inputs_of_the_fuzzer(seed: int) -> None:
    fuzz_wire.run(3000, seed)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=12)
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0 "), min_size=1, max_size=8)
UID = st.text("abc019-_.:/", min_size=1, max_size=12)
CALLS = st.builds(
    Call, uid=UID, timeout=st.integers(0, 10**6), function=WORD,
    args=st.lists(WORD.filter(lambda w: not w.startswith("len=")), max_size=3).map(tuple), access=TEXT, source=TEXT,
    content_type=TEXT.filter(bool), payload=st.binary(max_size=60),
)  # fmt: skip


@given(calls=st.lists(CALLS, max_size=4), sizes=CUTS)
@settings(max_examples=200, deadline=None)
def test_what_is_written_on_the_link_is_read_back(calls: list[Call], sizes: list[int]) -> None:
    decoder = CallDecoder(Mode.LINK)
    data = b"".join(encode_call(call, Mode.LINK) for call in calls)
    got = [event for chunk in cut(data, sizes) for event in decoder.feed(chunk)]
    assert [(e.uid, e.function, e.args[:-1], e.access, e.source, e.content_type, e.payload) for e in got
            if isinstance(e, Call)] == [
        (c.uid, c.function, c.args, c.access, c.source, c.content_type, c.payload) for c in calls
    ]  # fmt: skip


@given(call=CALLS)
@settings(max_examples=200, deadline=None)
def test_what_stdio_accepts_to_write_is_read_back(call: Call) -> None:
    try:
        data = encode_call(call, Mode.STDIO)
    except NotEncodable:
        return
    assert CallDecoder(Mode.STDIO).feed(data) == [call]


@given(result=st.builds(
    Result, uid=UID, code=st.integers(100, 599), content_type=TEXT, body=st.binary(max_size=60),
    expires=st.integers(0, 10**10), meta=st.binary(max_size=20), origin=st.none(),
))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_a_result_is_read_back(result: Result) -> None:
    assert ResultDecoder().feed(encode_result(result, Mode.LINK)) == [result]


@given(text=st.lists(st.sampled_from(["a", "bc", " ", "  ", '"', '""', "'", "\t", "\u2028"]), max_size=12).map("".join))
@settings(max_examples=300, deadline=None)
def test_the_short_way_reads_fields_as_the_careful_one(text: str) -> None:
    try:
        expected: list[str] | str = fields._any(text)
    except fields.FieldError as error:
        expected = str(error)
    try:
        got: list[str] | str = split(text)
    except fields.FieldError as error:
        got = str(error)
    assert got == expected


@given(
    uid=st.sampled_from(["t1", "a=b", "x" * 129, ""]),
    timeout=st.sampled_from(["1", "0012", "-1", "9" * 13, "1_0", "\u0663"]),
    command=st.sampled_from(['"fn"', '"fn a  b"', '" "', '""', "fn", '"fn len=3"', '"a\tb"', '"a""b"']),
    source=st.sampled_from(['""', "s", '"s"', "'s'"]), kind=st.sampled_from(["a/b", "a/b\t", '"a b"', "", "a/b c"]),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_the_short_way_reads_calls_as_the_careful_one(
    uid: str, timeout: str, command: str, source: str, kind: str
) -> None:
    line = f"FUNCTION_PAYLOAD {uid} {timeout} {command} 0x0 {source} {kind}"
    outcomes: list[object] = []
    for way in (lambda: commands.parse(line.encode()), lambda: commands._any(line.strip(" \t"))):
        try:
            command_or_none = way()
            outcomes.append(getattr(command_or_none, "call", command_or_none))
        except commands.CommandError as error:
            outcomes.append((error.rejected, error.payload))
    assert outcomes[0] == outcomes[1]


@given(parts=st.lists(TEXT, max_size=5))
def test_fields_are_read_back(parts: list[str]) -> None:
    assert split(" ".join(quote(part) for part in parts)) == parts


@given(
    registration=st.sampled_from(["8f3c", "", "a b", "a\nb", 'a"b']),
    invocation_id=st.text(st.characters(codec="utf-8"), max_size=130),
    attempt=st.integers(1, 10**9 - 1),
    millis=st.integers(0, 900_000),
    payload=st.binary(max_size=40),
    content_type=st.sampled_from(["", "application/json", "text/plain; charset=utf-8", "a\rb"]),
)
def test_an_invocation_is_written_at_once_as_its_call_is(
    registration: str, invocation_id: str, attempt: int, millis: int, payload: bytes, content_type: str
) -> None:
    call = invocation_call(
        tx="t1", registration=registration, invocation_id=invocation_id, attempt=attempt, millis=millis,
        payload=payload, content_type=content_type,
    )  # fmt: skip

    def at_once() -> bytes:
        return invocation_frame(
            tx="t1", registration=registration, invocation_id=invocation_id, attempt=attempt, millis=millis,
            payload=payload, content_type=content_type,
        )  # fmt: skip

    try:
        expected = encode_call(call, Mode.LINK)
    except NotEncodable:
        with pytest.raises(FieldError):
            at_once()
        return
    assert at_once() == expected == forwarded_frame(call, millis=millis)
    assert invocation_id_of(call) == invocation_id
