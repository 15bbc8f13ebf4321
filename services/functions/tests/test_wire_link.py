"""The link mode: declared lengths, so that no body is taken for a command, and a broken stream is said once."""

import pytest

from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.encode import (
    NotEncodable,
    encode_call,
    encode_cancel,
    encode_progress,
    encode_quit,
    encode_result,
)
from kruntimes.functions.wire.events import Call, Cancel, Mode, Progress, Quit, Reason, Rejected, Result, Violation
from kruntimes.functions.wire.limits import WireLimits
from kruntimes.functions.wire.results import ResultDecoder

HOSTILE = [
    b"", b"\n", b"QUIT\n", b"FUNCTION_CANCEL tx1\n", b"FUNCTION_PAYLOAD_END\n", b"\nFUNCTION_PAYLOAD_END\n",
    b"FUNCTION_RESULT_END\n", b"\x00" * 10, b"a\r\n", bytes(range(256)), b"FUNCTION x 1 f 0 s\n" * 3,
]  # fmt: skip


def call(payload: bytes, **more: object) -> Call:
    fields: dict[str, object] = {
        "uid": "tx1", "timeout": 60, "function": "reg", "args": ("timeout_ms=1500",), "access": "0x0",
        "source": "src", "content_type": "text/plain; charset=utf-8", "payload": payload,
    }  # fmt: skip
    return Call(**{**fields, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("payload", HOSTILE)
def test_a_payload_is_never_looked_at(payload: bytes) -> None:
    events = CallDecoder(Mode.LINK).feed(encode_call(call(payload), Mode.LINK) + encode_cancel("tx2"))
    assert events == [call(payload, args=("timeout_ms=1500", f"len={len(payload)}")), Cancel(uid="tx2")]
    assert isinstance(events[0], Call)
    assert events[0].option("timeout_ms") == "1500"
    assert events[0].option("missing") is None


@pytest.mark.parametrize("body", HOSTILE)
def test_a_result_is_never_looked_at(body: bytes) -> None:
    result = Result(
        uid="tx1", code=500, content_type="text/plain; charset=utf-8", body=body, expires=7, meta=b'{"a":1}'
    )
    events = ResultDecoder().feed(encode_result(result, Mode.LINK) + encode_progress("tx1", done=1, total=2))
    assert events == [result, Progress(uid="tx1", done=1, total=2)]


def test_quit_and_progress_pass() -> None:
    assert CallDecoder(Mode.LINK).feed(encode_quit() + encode_progress("t", done=0, total=9)) == [
        Quit(), Progress(uid="t", total=9),
    ]  # fmt: skip


def test_a_payload_over_the_limit_is_skipped_and_refused() -> None:
    decoder = CallDecoder(Mode.LINK, WireLimits(payload=10, skip=1000))
    events = decoder.feed(encode_call(call(b"QUIT\n" * 20), Mode.LINK) + encode_cancel("tx2"))
    assert isinstance(events[0], Rejected)
    assert (events[0].uid, events[0].code, events[0].reason) == ("tx1", 413, Reason.PAYLOAD_TOO_LARGE)
    assert events[1:] == [Cancel(uid="tx2")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"FUNCTION_PAYLOAD t 1 fn 0 s t\n", id="no-length"),
        pytest.param(b'FUNCTION_PAYLOAD t 1 "fn len=-1" 0 s t\n', id="negative-length"),
        pytest.param(b'FUNCTION_PAYLOAD t 1 "fn len=999999999" 0 s t\n', id="endless-length"),
        pytest.param(b'FUNCTION_PAYLOAD t 1 "fn len=2" 0 s t\nabc\nFUNCTION_PAYLOAD_END\n', id="longer-than-declared"),
        pytest.param(
            b'FUNCTION_PAYLOAD t 1 "fn len=4" 0 s t\nabc\nFUNCTION_PAYLOAD_END\nxx', id="shorter-than-declared"
        ),
        pytest.param(b"hello\n", id="no-command"),
        pytest.param(b"x" * 70_000, id="endless-line"),
    ],
)
def test_a_broken_stream_of_calls_ends_it(data: bytes) -> None:
    decoder = CallDecoder(Mode.LINK)
    events = decoder.feed(data)
    assert [type(event) for event in events] == [Violation]
    assert decoder.feed(encode_cancel("t")) == []
    assert decoder.eof() == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"hello\n", id="stray-text"),
        pytest.param(b"FUNCTION_RESULT_BEGIN t 200 a 0\n", id="no-lengths"),
        pytest.param(b"FUNCTION_RESULT_BEGIN t 200 a 0 len=1 meta=1\n", id="wrong-order"),
        pytest.param(b"FUNCTION_RESULT_BEGIN t 99 a 0 meta=0 len=0\n", id="no-status"),
        pytest.param(b"FUNCTION_RESULT_BEGIN t 200 a 0 meta=0 len=99999999\n", id="too-long"),
        pytest.param(b"FUNCTION_RESULT_BEGIN t 200 a 0 meta=0 len=1\nab\nFUNCTION_RESULT_END\n", id="wrong-length"),
        pytest.param(b"\xff\n", id="not-utf8"),
        pytest.param(b"x" * 70_000, id="endless-line"),
    ],
)
def test_a_broken_stream_of_results_ends_it(data: bytes) -> None:
    decoder = ResultDecoder()
    assert [type(event) for event in decoder.feed(data)] == [Violation]
    assert decoder.feed(encode_progress("t", done=0, total=1)) == []


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(call(b"", uid="a b"), id="id"),
        pytest.param(call(b"", source="a\nb"), id="line-end-in-a-field"),
        pytest.param(call(b"", args=("a b",)), id="blank-in-an-argument"),
        pytest.param(call(b"", function=""), id="no-name"),
    ],
)
def test_what_cannot_be_said_in_a_line_is_refused(value: Call) -> None:
    with pytest.raises(NotEncodable):
        encode_call(value, Mode.LINK)


@pytest.mark.parametrize(
    "payload", [b"QUIT", b"a\nFUNCTION_PAYLOAD_END\nb", b"FUNCTION_X", b"FUNCTION x\r\n", b"FUNCTION"]
)
def test_stdio_refuses_a_payload_that_reads_as_a_command(payload: bytes) -> None:
    with pytest.raises(NotEncodable):
        encode_call(call(payload), Mode.STDIO)


def test_stdio_results_have_the_form_that_agents_read() -> None:
    result = Result(uid="tx1", code=200, content_type="application/json", body=b"{}", expires=7)
    assert encode_result(result, Mode.STDIO) == (
        b"FUNCTION_RESULT_BEGIN tx1 200 application/json 7\n{}\nFUNCTION_RESULT_END\n\n"
    )
    typed = Result(uid="tx1", code=200, content_type="text/plain;charset=utf-8", expires=7)
    assert encode_result(typed, Mode.STDIO).startswith(b'FUNCTION_RESULT_BEGIN tx1 200 "text/plain;charset=utf-8" 7\n')
    for result in (
        Result(uid="t", code=200, content_type="a", body=b"x\n FUNCTION_RESULT_END\n"),
        Result(uid="t", code=200, content_type='a;b="c"'),
        Result(uid="t", code=200, content_type="a\\b"),
    ):
        with pytest.raises(NotEncodable):
            encode_result(result, Mode.STDIO)
