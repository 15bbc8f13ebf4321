"""The stdio mode: each control rule of the second source document, and where the decoder is stricter."""

import pytest

from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.events import Call, CallEvent, Cancel, Mode, Progress, Quit, Reason, Rejected
from kruntimes.functions.wire.limits import WireLimits

SMALL = WireLimits(line=200, payload=64)
HEAD = b'FUNCTION_PAYLOAD tx1 10 "fn" 0x0 "src" text/plain\n'
END = b"FUNCTION_PAYLOAD_END\n"
CALL = b'FUNCTION tx9 10 "fn a b" 0x7 "method=api"\n'
PLAIN = Call(uid="tx9", timeout=10, function="fn", args=("a", "b"), access="0x7", source="method=api")


def decode(data: bytes, *, limits: WireLimits = SMALL, eof: bool = False) -> list[CallEvent]:
    decoder = CallDecoder(Mode.STDIO, limits)
    events = decoder.feed(data)
    return events + decoder.eof() if eof else events


def brief(events: list[CallEvent]) -> list[object]:
    """Rejections as (uid, code, reason), calls as (uid, payload); the rest as they are."""
    out: list[object] = []
    for event in events:
        match event:
            case Rejected():
                out.append((event.uid, event.code, event.reason))
            case Call():
                out.append((event.uid, event.payload))
            case _:
                out.append(event)
    return out


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(CALL, [PLAIN], id="a-call"),
        pytest.param(CALL.replace(b"\n", b"\r\n"), [PLAIN], id="crlf"),
        pytest.param(b"   " + CALL, [PLAIN], id="blanks-around-a-command-line-go"),
        pytest.param(
            b"FUNCTION  tx9   10 'fn  a b' 0x7  \"method=api\"\n", [PLAIN], id="runs-of-blanks-and-single-quotes"
        ),
        pytest.param(b"FUNCTION_CANCEL tx1\n", [Cancel(uid="tx1")], id="cancel"),
        pytest.param(b'FUNCTION_CANCEL "tx1"\n', [Cancel(uid="tx1")], id="cancel-quoted"),
        pytest.param(b"FUNCTION_PROGRESS tx1\n", [Progress(uid="tx1")], id="progress"),
        pytest.param(
            b"FUNCTION_PROGRESS tx1 3 10\n", [Progress(uid="tx1", done=3, total=10)], id="progress-with-numbers"
        ),
        pytest.param(b"QUIT\n", [Quit()], id="quit"),
        pytest.param(b"\n  \n\r\n", [], id="blank-lines-say-nothing"),
        pytest.param(
            b'FUNCTION t 1 "say ""hi"" C:\\x" "" ""\n',
            [Call(uid="t", timeout=1, function="say", args=('"hi"', "C:\\x"))],
            id="doubled-quotes-and-backslash-are-literal",
        ),
        pytest.param(
            b"FUNCTION t 0 fn 0x0 s application/json\n",
            [Call(uid="t", timeout=0, function="fn", access="0x0", source="s", content_type="application/json")],
            id="seventh-field-without-payload",
        ),
    ],
)
def test_commands(data: bytes, expected: list[CallEvent]) -> None:
    assert decode(data) == expected


@pytest.mark.parametrize(
    ("line", "uid", "reason"),
    [
        pytest.param(b"FUNCTION", None, Reason.MALFORMED, id="keyword-alone"),
        pytest.param(b"FUNCTION tx 10 fn 0x0", "tx", Reason.MALFORMED, id="five-fields"),
        pytest.param(b"FUNCTION tx 10 fn 0x0 s t extra", "tx", Reason.MALFORMED, id="eight-fields"),
        pytest.param(b"FUNCTION tx -5 fn 0x0 s", "tx", Reason.MALFORMED, id="negative-time"),
        pytest.param(b"FUNCTION tx 1.5 fn 0x0 s", "tx", Reason.MALFORMED, id="fraction"),
        pytest.param(b"FUNCTION tx 1_0 fn 0x0 s", "tx", Reason.MALFORMED, id="underscore"),
        pytest.param(b"FUNCTION tx 0x10 fn 0x0 s", "tx", Reason.MALFORMED, id="hexadecimal"),
        pytest.param(b"FUNCTION tx " + b"9" * 40 + b" fn 0x0 s", "tx", Reason.MALFORMED, id="endless-number"),
        pytest.param(b'FUNCTION tx 10 "fn 0x0 s', "tx", Reason.MALFORMED, id="open-quote"),
        pytest.param(b'FUNCTION tx 10 "fn"x 0x0 s', "tx", Reason.MALFORMED, id="text-after-quote"),
        pytest.param(b'FUNCTION tx 10 fn"a 0x0 s', "tx", Reason.MALFORMED, id="quote-inside"),
        pytest.param(b'FUNCTION tx 10 "" 0x0 s', "tx", Reason.MALFORMED, id="no-name"),
        pytest.param(b'FUNCTION "a b" 10 fn 0x0 s', None, Reason.MALFORMED, id="blank-in-id"),
        pytest.param(b"FUNCTION a=b 10 fn 0x0 s", None, Reason.MALFORMED, id="equals-in-id"),
        pytest.param(b"FUNCTION " + b"x" * 129 + b" 1 f 0 s", None, Reason.MALFORMED, id="id-too-long"),
        pytest.param(b'FUNCTION "" 10 fn 0x0 s', None, Reason.MALFORMED, id="empty-id"),
        pytest.param(b"FUNCTION\ttx 10 fn 0x0 s", None, Reason.UNKNOWN_COMMAND, id="tab-is-no-separator"),
        pytest.param(b"FUNCTION tx 10 f\xff 0x0 s", "tx", Reason.MALFORMED, id="not-utf8"),
        pytest.param(b"FUNCTION_CANCEL", None, Reason.MALFORMED, id="cancel-of-nothing"),
        pytest.param(b"FUNCTION_CANCEL a b", None, Reason.MALFORMED, id="cancel-of-two"),
        pytest.param(b"FUNCTION_PROGRESS", None, Reason.MALFORMED, id="progress-of-nothing"),
        pytest.param(b"FUNCTION_PAYLOAD_END", None, Reason.UNKNOWN_COMMAND, id="end-of-nothing"),
        pytest.param(b"FUNCTION_X", None, Reason.UNKNOWN_COMMAND, id="unknown-function-word"),
        pytest.param(b"QUIT now", None, Reason.UNKNOWN_COMMAND, id="quit-with-more"),
        pytest.param(b"quit", None, Reason.UNKNOWN_COMMAND, id="lower-case"),
        pytest.param(b"hello", None, Reason.UNKNOWN_COMMAND, id="anything-else"),
        pytest.param(b"FUNCTION tx 10 " + b"f" * 300, "tx", Reason.LINE_TOO_LONG, id="too-long"),
        pytest.param(b"FUNCTION " + b"x" * 300, None, Reason.LINE_TOO_LONG, id="too-long-inside-its-id"),
        pytest.param(b" " * 210 + b"FUNCTION tx 10 f", None, Reason.LINE_TOO_LONG, id="too-long-before-its-id"),
    ],
)
def test_what_is_no_command_is_refused_and_the_next_one_is_read(line: bytes, uid: str | None, reason: Reason) -> None:
    assert brief(decode(line + b"\n" + CALL)) == [(uid, 400, reason), ("tx9", None)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"a\nb\n" + END, [("tx1", b"a\nb")], id="lines"),
        pytest.param(END, [("tx1", b"")], id="empty-is-not-none"),
        pytest.param(b"\n\n  x \n\n" + END, [("tx1", b"\n\n  x \n")], id="indentation-and-blank-lines-stay"),
        pytest.param(b"a\r\nb\r\nFUNCTION_PAYLOAD_END\r\n", [("tx1", b"a\r\nb")], id="crlf-before-the-end-goes"),
        pytest.param(b"a\r\n" + END, [("tx1", b"a\r")], id="carriage-return-of-the-body-stays"),
        pytest.param(b"\x00\xff\n" + END, [("tx1", b"\x00\xff")], id="any-byte"),
        pytest.param(b"x" * 64 + b"\n" + END, [("tx1", b"x" * 64)], id="the-longest"),
        pytest.param(
            b"x" * 65 + b"\n" + END + CALL, [("tx1", 413, Reason.PAYLOAD_TOO_LARGE), ("tx9", None)], id="one-byte-more"
        ),
        pytest.param(
            b"x" * 9000 + b"\n" + END + CALL,
            [("tx1", 413, Reason.PAYLOAD_TOO_LARGE), ("tx9", None)],
            id="one-endless-line",
        ),
        pytest.param(b"x FUNCTION_PAYLOAD_END\n" + END, [("tx1", b"x FUNCTION_PAYLOAD_END")], id="end-inside-a-line"),
        pytest.param(
            b"  FUNCTION_PAYLOAD_END \n" + END, [("tx1", b"  FUNCTION_PAYLOAD_END ")], id="indented-end-is-body"
        ),
        pytest.param(b"FUNCTIONALITY=true\n" + END, [("tx1", b"FUNCTIONALITY=true")], id="a-longer-word-is-body"),
        pytest.param(
            b"FUNCTION_CANCEL tx1\nrest\n" + END + CALL,
            [Cancel(uid="tx1", before_admission=True), ("tx9", None)],
            id="cancel-of-this-one",
        ),
        pytest.param(
            b"a\nFUNCTION_CANCEL other\nb\n" + END, [Cancel(uid="other"), ("tx1", b"a\nb")], id="cancel-of-another"
        ),
        pytest.param(
            b"a\nFUNCTION_CANCEL\nb\n" + END,
            [(None, 400, Reason.MALFORMED), ("tx1", b"a\nb")],
            id="malformed-cancel-keeps-the-frame",
        ),
        pytest.param(b"a\nFUNCTION_PROGRESS tx1\nb\n" + END, [Progress(uid="tx1"), ("tx1", b"a\nb")], id="progress"),
        pytest.param(b"a\nQUIT\n", [Quit()], id="quit-drops-the-frame"),
        pytest.param(b"a\n" + CALL, [("tx1", 400, Reason.PAYLOAD_ABANDONED), ("tx9", None)], id="another-call"),
        pytest.param(
            b"a\n" + HEAD.replace(b"tx1", b"tx2") + b"b\n" + END,
            [("tx1", 400, Reason.PAYLOAD_ABANDONED), ("tx2", b"b")],
            id="another-payload",
        ),
        pytest.param(
            b"a\nFUNCTION_X: 1\nQUITTER\nFUNCTION_CANCEL t\n" + END + CALL,
            [
                ("tx1", 400, Reason.PAYLOAD_ABANDONED),
                (None, 400, Reason.UNKNOWN_COMMAND),
                Cancel(uid="t"),
                ("tx9", None),
            ],
            id="another-function-word-and-the-rest-is-swallowed",
        ),
        pytest.param(
            b"a\nFUNCTION\nb\n" + END + CALL,
            [("tx1", 400, Reason.PAYLOAD_ABANDONED), (None, 400, Reason.MALFORMED), ("tx9", None)],
            id="the-bare-word",
        ),
        pytest.param(
            b"FUNCTION_X" + b"x" * 300 + b"\n" + END + CALL,
            [("tx1", 413, Reason.PAYLOAD_TOO_LARGE), ("tx9", None)],
            id="no-command-is-that-long",
        ),
    ],
)
def test_inside_a_payload(body: bytes, expected: list[object]) -> None:
    assert brief(decode(HEAD + body)) == expected


def test_the_body_of_an_unreadable_head_is_never_read_as_commands() -> None:
    events = decode(b"FUNCTION_PAYLOAD tx1 soon fn 0x0 s t\nhello\nFUNCTION_CANCEL_ALL\n" + END + CALL)
    assert brief(events) == [
        ("tx1", 400, Reason.MALFORMED),
        (None, 400, Reason.UNKNOWN_COMMAND),
        ("tx9", None),
    ]


def test_a_payload_without_a_type_is_bytes() -> None:
    events = decode(b"FUNCTION_PAYLOAD tx1 1 fn 0x0 s\n" + END)
    assert isinstance(events[0], Call)
    assert events[0].content_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"QUIT", [Quit()], id="agents-send-quit-without-a-line-end"),
        pytest.param(CALL[:-1], [("tx9", 400, Reason.UNFINISHED)], id="a-call-that-may-be-cut-is-not-run"),
        pytest.param(b"FUNCTION tx", [(None, 400, Reason.UNFINISHED)], id="half-an-id-is-none"),
        pytest.param(HEAD + b"a\n", [("tx1", 400, Reason.UNFINISHED)], id="inside-a-payload"),
        pytest.param(HEAD + b"QUIT", [("tx1", 400, Reason.UNFINISHED), Quit()], id="quit-inside-a-payload"),
        pytest.param(b"garbage", [(None, 400, Reason.UNFINISHED)], id="garbage"),
        pytest.param(CALL, [("tx9", None)], id="nothing-open"),
    ],
)
def test_the_end_of_the_input(data: bytes, expected: list[object]) -> None:
    assert brief(decode(data, eof=True)) == expected
