"""What bytes become requests, which are refused, and that their pieces do not matter."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.garbage import least_garbage

from kruntimes.common.http1.machine import Continue, Event, Limits, Machine, Stage
from kruntimes.common.http1.messages import Fault, Request, Response, Wrong, encode_response

LIMITS = Limits(body=100, head=400, headers=10)
HEAD = b"POST /a?b HTTP/1.1\r\nhost: x\r\n"


def events(*pieces: bytes, limits: Limits = LIMITS) -> list[Event]:
    """Everything that the pieces make."""
    machine, found = Machine(limits), list[Event]()
    for piece in pieces:
        machine.feed(piece)
        while (event := machine.next()) is not None:
            found.append(event)
    return found


def only(data: bytes) -> Event:
    (event,) = events(data)
    return event


@pytest.mark.parametrize(
    ("data", "body", "keep_alive"),
    [
        pytest.param(HEAD + b"\r\n", b"", True, id="no-body"),
        pytest.param(b"\r\n\r\n" + HEAD + b"\r\n", b"", True, id="empty-lines-before"),
        pytest.param(HEAD + b"content-length: 3\r\n\r\nabc", b"abc", True, id="length"),
        pytest.param(HEAD + b"content-length: 003 \r\n\r\nabc", b"abc", True, id="length-with-zeros"),
        pytest.param(HEAD + b"content-length: 0\r\n\r\n", b"", True, id="length-0"),
        pytest.param(HEAD + b"content-length: 100\r\n\r\n" + b"x" * 100, b"x" * 100, True, id="length-at-the-limit"),
        pytest.param(HEAD + b"content-length: 101\r\n\r\n", None, False, id="length-over-the-limit"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"", True, id="no-chunks"),
        pytest.param(
            HEAD + b"Transfer-Encoding: Chunked\r\n\r\n2;a=b\r\nab\r\n00001\r\nc\r\n0\r\nt: 1\r\nu: 2\r\n\r\n",
            b"abc",
            True,
            id="chunks-with-extension-and-trailers",
        ),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n65\r\n", None, False, id="chunks-over-the-limit"),
        pytest.param(HEAD + b"connection: close\r\n\r\n", b"", False, id="close"),
        pytest.param(b"POST /a?b HTTP/1.0\r\n\r\n", b"", False, id="old"),
        pytest.param(b"POST /a?b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"", True, id="old-that-stays"),
    ],
)
def test_requests(data: bytes, body: bytes | None, keep_alive: bool) -> None:
    request = only(data)
    assert isinstance(request, Request)
    assert (request.method, request.target) == ("POST", "/a?b")
    assert (request.body, request.keep_alive) == (body, keep_alive)


def test_headers_are_read_by_their_name_in_every_spelling() -> None:
    request = only(HEAD + b"A: 1\r\nb:\r\na:  2 \r\nc: \xff\r\n\r\n")
    assert isinstance(request, Request)
    assert request.values(b"a") == ("1", "2")
    assert (request.value(b"a"), request.once(b"a"), request.once(b"b")) == ("1", None, "")
    assert (request.values(b"none"), request.value(b"none"), request.once(b"none")) == ((), None, None)
    assert request.value(b"c") == "\udcff"
    assert "1" not in repr(request)


def test_a_request_leaves_nothing_to_the_garbage_collector() -> None:
    """What only a collection would free takes new memory for every request, and a walk through all of it at the end."""
    machine = Machine(LIMITS)

    def requests() -> None:
        for _ in range(10):
            machine.feed(HEAD + b"content-length: 3\r\n\r\nabc")
            assert machine.next() is not None

    assert least_garbage(requests) == 0


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        pytest.param(HEAD + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n", Wrong.MALFORMED, id="both"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n", Wrong.MALFORMED, id="both-2"),
        pytest.param(HEAD + b"content-length: 3\r\ncontent-length: 3\r\n\r\n", Wrong.MALFORMED, id="two-lengths"),
        pytest.param(HEAD + b"content-length: 3, 3\r\n\r\n", Wrong.MALFORMED, id="a-list-of-lengths"),
        pytest.param(HEAD + b"content-length: +3\r\n\r\n", Wrong.MALFORMED, id="signed-length"),
        pytest.param(HEAD + b"content-length: 1_0\r\n\r\n", Wrong.MALFORMED, id="length-with-underscore"),
        pytest.param(HEAD + b"content-length:\r\n\r\n", Wrong.MALFORMED, id="empty-length"),
        pytest.param(HEAD + b"content-length: 0x3\r\n\r\n", Wrong.MALFORMED, id="hexadecimal-length"),
        pytest.param(HEAD + b"content-length: " + b"9" * 30 + b"\r\n\r\n", Wrong.MALFORMED, id="endless-length"),
        pytest.param(HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n", Wrong.MALFORMED, id="two-encodings"),
        pytest.param(HEAD + b"transfer-encoding: xchunked\r\n\r\n", Wrong.MALFORMED, id="other-encoding"),
        pytest.param(HEAD + b"transfer-encoding: \x0bchunked\r\n\r\n", Wrong.MALFORMED, id="encoding-after-a-tab"),
        pytest.param(HEAD + b"transfer-encoding : chunked\r\n\r\n", Wrong.MALFORMED, id="blank-before-the-colon"),
        pytest.param(b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n", Wrong.MALFORMED, id="old-with-chunks"),
        pytest.param(HEAD + b"a: b\r\n c\r\n\r\n", Wrong.MALFORMED, id="folded"),
        pytest.param(HEAD + b": b\r\n\r\n", Wrong.MALFORMED, id="nameless"),
        pytest.param(HEAD + b"a\r\n\r\n", Wrong.MALFORMED, id="no-colon"),
        pytest.param(HEAD + b"a: b\0c\r\n\r\n", Wrong.MALFORMED, id="nul"),
        pytest.param(HEAD + b"a: b\rc\r\n\r\n", Wrong.MALFORMED, id="bare-cr"),
        pytest.param(HEAD + b"a: b\nc: d\r\n\r\n", Wrong.MALFORMED, id="bare-lf"),
        pytest.param(b"POST / HTTP/1.1\r\n\r\n", Wrong.MALFORMED, id="no-host"),
        pytest.param(HEAD + b"host: y\r\n\r\n", Wrong.MALFORMED, id="two-hosts"),
        pytest.param(HEAD + b"upgrade: h2c\r\nconnection: upgrade\r\n\r\n", Wrong.MALFORMED, id="upgrade"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", Wrong.MALFORMED, id="connect"),
        pytest.param(b"NONSENSE / HTTP/1.1\r\nhost: a\r\n\r\n", Wrong.MALFORMED, id="method"),
        pytest.param(b"POST /a b HTTP/1.1\r\nhost: a\r\n\r\n", Wrong.MALFORMED, id="blank-in-the-path"),
        pytest.param(b"POST / HTTP/2.0\r\nhost: a\r\n\r\n", Wrong.VERSION, id="version"),
        pytest.param(b"POST / RTSP/1.0\r\nhost: a\r\n\r\n", Wrong.VERSION, id="protocol"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Wrong.VERSION, id="http2"),
        pytest.param(b"\x16\x03\x01" + b"x" * 40 + b"\r\n\r\n", Wrong.VERSION, id="tls"),
        pytest.param(HEAD + b"expect: coffee\r\n\r\n", Wrong.EXPECTATION, id="expectation"),
        pytest.param(HEAD + b"a: " + b"b" * 400, Wrong.HEAD_TOO_LARGE, id="long-head"),
        pytest.param(HEAD + b"a: " + b"b" * 365 + b"\r\n\r\n", Wrong.HEAD_TOO_LARGE, id="long-head-with-its-end"),
        pytest.param(HEAD + b"a: b\r\n" * 10 + b"\r\n", Wrong.HEAD_TOO_LARGE, id="many-headers"),
    ],
)
def test_refused_heads(data: bytes, wrong: Wrong) -> None:
    fault = only(data)
    assert isinstance(fault, Fault)
    assert fault.wrong is wrong


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(b"zz\r\n", id="not-a-number"),
        pytest.param(b"\r\n", id="no-size"),
        pytest.param(b"+1\r\na\r\n", id="signed"),
        pytest.param(b"0x1\r\na\r\n", id="prefixed"),
        pytest.param(b"000000001\r\na\r\n", id="too-many-digits"),
        pytest.param(b"1\na\r\n", id="bare-lf-after-the-size"),
        pytest.param(b"1\r\nab\r\n", id="longer-than-its-size"),
        pytest.param(b"1\r\na\n0\r\n\r\n", id="bare-lf-after-the-data"),
        pytest.param(b"1;" + b"x" * 300 + b"\r\na\r\n", id="long-extension"),
        pytest.param(b"1;a\nb\r\na\r\n", id="line-break-in-the-extension"),
        pytest.param(b"0\r\nno field\r\n\r\n", id="trailer-that-is-no-field"),
        pytest.param(b"0\r\n" + b"a: " + b"b" * 9000, id="long-trailer"),
        pytest.param(b"0\r\n" + b"a: bbbbbbbbbb\r\n" * 700, id="many-trailers"),
    ],
)
def test_refused_chunks(chunks: bytes) -> None:
    fault = only(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks)
    assert isinstance(fault, Fault)
    assert fault.wrong is Wrong.MALFORMED
    assert fault.request is not None


def test_requests_that_come_together_stay_in_order_and_apart() -> None:
    first = HEAD + b"content-length: 3\r\n\r\nabc"
    second = b"GET /2 HTTP/1.1\r\nhost: x\r\n\r\n"
    found = events(first + second + first)
    assert [(event.target, event.body) for event in found if isinstance(event, Request)] == [
        ("/a?b", b"abc"),
        ("/2", b""),
        ("/a?b", b"abc"),
    ]


@pytest.mark.parametrize(
    "last",
    [HEAD + b"connection: close\r\n\r\n", HEAD + b"content-length: 101\r\n\r\n", b"nonsense\r\n\r\n"],
    ids=["close", "too-large", "fault"],
)
def test_nothing_is_read_after_the_last(last: bytes) -> None:
    machine = Machine(LIMITS)
    machine.feed(last + HEAD + b"\r\n")
    assert machine.next() is not None
    assert machine.stage is Stage.DONE
    machine.feed(HEAD + b"\r\n")
    assert machine.next() is None
    assert machine.buffered == 0


def test_a_caller_that_waits_for_a_word_gets_it_once() -> None:
    machine = Machine(LIMITS)
    machine.feed(HEAD + b"expect: 100-Continue\r\ncontent-length: 3\r\n\r\n")
    assert isinstance(machine.next(), Continue)
    assert machine.next() is None
    assert machine.begun is not None
    assert machine.stage is Stage.BODY
    machine.feed(b"abc")
    request = machine.next()
    assert isinstance(request, Request)
    assert request.body == b"abc"
    assert machine.stage is Stage.IDLE


def test_a_caller_that_did_not_wait_gets_no_word() -> None:
    assert isinstance(only(HEAD + b"expect: 100-continue\r\ncontent-length: 3\r\n\r\nabc"), Request)


_NAMES = st.sampled_from(
    [b"content-length", b"transfer-encoding", b"connection", b"host", b"expect", b"upgrade", b"a", b"a ", b""]
)
_VALUES = st.sampled_from(
    [b"0", b"3", b"7", b"chunked", b"close", b"keep-alive", b"x", b"h2c", b"", b" 3", b"3 ", b"+3"]
)
_LINES = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
_HEADERS = st.lists(st.tuples(_NAMES, _VALUES, _LINES), max_size=6).map(
    lambda fields: b"".join(name + b": " + value + end for name, value, end in fields)
)
_STARTS = st.sampled_from(
    [b"POST / HTTP/1.1\r\nhost: x\r\n", b"GET /x HTTP/1.0\r\n", b"\r\nHEAD / HTTP/1.1\r\nhost: y\r\n"]
)
_BODIES = st.sampled_from(
    [
        b"",
        b"abc",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabcd\r\n",
        b"0\r\na: b\r\n\r\n",
        b"7\r\nabcdefg\r\n0\r\n\r\n",
    ]
)
_STREAMS = st.lists(
    st.tuples(_STARTS, _HEADERS, _BODIES).map(lambda parts: parts[0] + parts[1] + b"\r\n" + parts[2]), max_size=4
).map(b"".join)


def plain(found: list[Event]) -> list[Any]:
    """The events without the word that a caller waits for, which depends on whether it waits."""
    return [event for event in found if not isinstance(event, Continue)]


@given(data=_STREAMS | st.binary(max_size=600), cuts=st.lists(st.integers(0, 700), max_size=12))
@example(data=HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" * 2, cuts=list(range(100)))
def test_pieces_never_change_events(data: bytes, cuts: list[int]) -> None:
    ends = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(ends)]
    assert plain(events(*pieces)) == plain(events(data))


@given(pieces=st.lists(st.binary(max_size=80) | _STREAMS, max_size=20))
def test_no_bytes_make_it_fail_or_grow(pieces: list[bytes]) -> None:
    machine = Machine(LIMITS)
    for piece in pieces:
        machine.feed(piece)
        while machine.next() is not None:
            pass
        assert machine.buffered <= LIMITS.head + LIMITS.body + len(piece)


@pytest.mark.parametrize(
    ("response", "options", "data"),
    [
        pytest.param(
            Response(status=200, headers={"a": "b"}, body=b"x"),
            {},
            b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 1\r\n\r\nx",
            id="answer",
        ),
        pytest.param(Response(status=499), {}, b"HTTP/1.1 499 \r\ncontent-length: 0\r\n\r\n", id="unknown-status"),
        pytest.param(
            Response(status=200, body=b"xy"),
            {"head_only": True},
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
            id="head",
        ),
        pytest.param(Response(status=204, body=b"x"), {}, b"HTTP/1.1 204 No Content\r\n\r\n", id="no-content"),
        pytest.param(
            Response(status=200),
            {"close": True, "old": True},
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            id="last",
        ),
        pytest.param(
            Response(status=200),
            {"old": True},
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n",
            id="old",
        ),
    ],
)
def test_answers(response: Response, options: dict[str, bool], data: bytes) -> None:
    assert encode_response(response, **{"head_only": False, "close": False, **options}) == data


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\n", "\r", "\0", "\udcff"])
def test_a_header_cannot_break_out_of_its_line(value: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        encode_response(Response(status=200, headers={"a": value}), head_only=False, close=False)
