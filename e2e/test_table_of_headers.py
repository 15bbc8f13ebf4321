"""Headers: ids and deadlines, too many and too large, and what two parsers might read differently (design §6)."""

import pytest
from gateway_table import (
    AUTHZ,
    ENVOY,
    MADE,
    NULL,
    RESET,
    RUNTIMED,
    Expect,
    Row,
    Target,
    check,
    check_resets,
    check_served,
    params,
)

ID, TIMEOUT = "x-kruntime-invocation-id", "x-kruntime-timeout-ms"
BAD_ID = Expect(400, "BadInvocationID", AUTHZ, invocation_id=NULL)
BAD_TIME = Expect(400, "BadTimeout", AUTHZ)
BROKEN = Expect(400, "BadRequest", ENVOY, invocation_id=NULL)
TOO_MUCH = Expect(431, "HeadersTooLarge", ENVOY, invocation_id=NULL)
VERSION = Expect(426, "UpgradeRequired", ENVOY, invocation_id=NULL)
BROKEN_HOST = Expect(400, "BadRequest", AUTHZ)
NOBODY = Expect(401, "Unauthorized", AUTHZ)
PROTOCOL = Expect(400, "UpgradeNotSupported", ENVOY)


def bad_id(id: str, *values: str, expect: Expect = BAD_ID, h2: Expect | None = None) -> Row:
    return Row(id=f"id-{id}", own_id=False, headers=[(ID, value) for value in values], expect=expect, h2=h2)


def bad_time(id: str, *values: str) -> Row:
    return Row(id=f"time-{id}", headers=[(TIMEOUT, value) for value in values], expect=BAD_TIME)


def odd(id: str, *headers: tuple[str, str], **more: object) -> Row:
    return Row(id=id, headers=headers, **{"expect": BROKEN, "h2": RESET} | more)  # type: ignore[arg-type]


ROWS = [
    bad_id("empty", ""),
    bad_id("too-long", "a" * 129),
    bad_id("much-too-long", "a" * 8000),
    bad_id("blank", "a b"),
    bad_id("tabulator", "a\tb"),
    # Envoy joins what is given twice and replaces what is not UTF-8 before authz reads it: the Pod reads the bytes.
    bad_id("not-utf-8", "caf\xe9", expect=Expect(400, "BadInvocationID", RUNTIMED, invocation_id=NULL), h2=BAD_ID),
    bad_id("twice", "a", "b", expect=Expect(400, "BadInvocationID", RUNTIMED, invocation_id=NULL)),
    Row(
        id="id-made-where-none-is",
        own_id=False,
        token=None,
        expect=Expect(401, "Unauthorized", AUTHZ, invocation_id=MADE),
    ),
    bad_time("zero", "0"),
    bad_time("zeros", "000"),
    bad_time("above-the-longest", "900001"),
    bad_time("far-above", "999999999999999999999"),
    bad_time("negative", "-1"),
    bad_time("plus", "+5"),
    bad_time("fraction", "1.5"),
    bad_time("exponent", "1e3"),
    bad_time("underscore", "1_0"),
    bad_time("hexadecimal", "0x10"),
    bad_time("unit", "5s"),
    bad_time("word", "never"),
    bad_time("empty", ""),
    bad_time("twice", "5000", "5000"),
    bad_time("listed", "5000, 5000"),
    bad_time("not-ascii", "\xb2"),
    # sizes
    Row(id="one-header-too-large", headers=[("a", "b" * 17_000)], expect=TOO_MUCH, h2=RESET),
    Row(id="one-name-too-large", headers=[("a" * 17_000, "b")], expect=TOO_MUCH, h2=RESET),
    Row(id="all-too-large", headers=[(f"a{n}", "b" * 1000) for n in range(20)], expect=TOO_MUCH, h2=RESET),
    Row(id="too-many", headers=[(f"a{n}", "b") for n in range(70)], expect=TOO_MUCH, h2=RESET),
    Row(id="target-too-large", target="{path}?" + "a" * 17_000, expect=TOO_MUCH, h2=RESET),
    # names and values that are none
    odd("underscore-in-a-name", ("a_b", "c")),
    odd("underscore-for-a-dash", ("x_kruntime_timeout_ms", "5")),
    odd("blank-in-a-name", ("a b", "c")),
    odd("blank-before-the-colon", ("a ", "c"), h2=RESET),
    odd("null-in-a-value", ("a", "b\0c")),
    odd("line-end-in-a-value", ("a", "b\rc"), h2_only=True),
    odd("folded-line", ("a", "b\r\n c"), h2_only=True),
    odd("colon-in-front", (":a", "b")),
    odd("upper-case-over-http2", ("X-Upper", "a"), h2_only=True),
    odd("pseudo-header-after-others", (":path", "/"), h2_only=True),
    # lengths and codings
    odd("length-and-coding", ("transfer-encoding", "chunked"), ("content-length", "2"), h2=RESET),
    odd("coding-over-http2", ("transfer-encoding", "chunked"), h2_only=True),
    odd("unknown-coding", ("transfer-encoding", "gzip"), h1_only=True),
    odd("two-codings", ("transfer-encoding", "gzip, chunked"), h1_only=True),
    odd("coding-twice", ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked"), h1_only=True),
    odd("coding-with-a-tail", ("transfer-encoding", "chunked, identity"), h1_only=True),
    odd("coding-in-disguise", ("transfer-encoding", "\x0bchunked"), h1_only=True),
    odd("two-lengths", ("content-length", "2"), ("content-length", "3")),
    odd("listed-lengths", ("content-length", "2, 2")),
    odd("length-of-a-word", ("content-length", "two")),
    odd("negative-length", ("content-length", "-2")),
    odd("length-with-a-sign", ("content-length", "+2")),
    odd("length-in-hexadecimal", ("content-length", "0x2")),
    odd("endless-length", ("content-length", "9" * 30)),
    # a change of protocol, and hop headers
    Row(
        id="websocket",
        method="GET",
        body=b"",
        headers=[("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")],
        expect=PROTOCOL,
        h2=RESET,
    ),
    Row(id="upgrade", headers=[("connection", "upgrade"), ("upgrade", "foo")], expect=PROTOCOL, h2=RESET),
    odd("connection-over-http2", ("connection", "close"), h2_only=True),
    odd("keep-alive-over-http2", ("keep-alive", "timeout=5"), h2_only=True),
    odd("proxy-connection-over-http2", ("proxy-connection", "close"), h2_only=True),
    odd("te-over-http2", ("te", "gzip"), h2_only=True),
    # who is asked
    Row(id="no-host", host=(), expect=Expect(400, "BadRequest", ENVOY), h2=RESET),
    Row(id="host-with-a-blank", host=("a b",), expect=BROKEN, h2=RESET),
    Row(id="two-hosts", host=("{authority}", "evil.test"), expect=Expect(400, "BadRequest", AUTHZ), h2=RESET),
    Row(id="listed-hosts", host=("{authority},evil.test",), expect=BROKEN_HOST, h2=BROKEN_HOST),
    Row(id="hop-of-the-token", headers=[("connection", "authorization")], expect=NOBODY, h1_only=True),
    # versions
    Row(id="http-1.0", version="1.0", expect=VERSION, h1_only=True),
    Row(id="http-1.2", version="1.2", expect=VERSION, h1_only=True),
    Row(id="http-3.0", version="3.0", expect=VERSION, h1_only=True),
    Row(id="no-version", version="", expect=BROKEN, h1_only=True),
    Row(id="lower-case-method", method="post", expect=BROKEN, h2=Expect(400, "BadRequest", AUTHZ, invocation_id=NULL)),
    Row(id="method-with-a-blank", method="PO ST", expect=BROKEN, h2=RESET),
]


@pytest.mark.parametrize(("row", "protocol"), params(ROWS))
def test_headers(table: Target, row: Row, protocol: str) -> None:
    check(table, row, protocol)


async def test_headers_that_http2_resets(table: Target) -> None:
    await check_resets(table, ROWS)


HARMLESS = [
    Row(id="plain"),
    Row(id="shortest-id-and-longest-time", headers=[(TIMEOUT, "900000")]),
    Row(id="zeros-before-a-time", headers=[(TIMEOUT, "0005000")]),
    Row(id="trace", headers=[("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]),
    Row(id="absolute-form-of-another-host", target="https://evil.test{path}", h1_only=True),
    Row(id="another-host", host=("evil.test",)),
    Row(
        id="routing-of-another-pod",
        headers=[("x-kr-dst", "127.0.0.1:1"), ("x-kr-sni", "a"), ("x-kr-shard", "fff")],
    ),
    Row(id="epoch-of-another", headers=[("x-kr-epoch", "{nowhere}/1/{nowhere}"), ("x-kr-hop", "1")]),
    Row(id="runtime-of-another", headers=[("x-kr-runtime", "default/bash")]),
    Row(id="a-length-of-our-own", headers=[("x-kr-length", "9999999999")]),
    Row(id="time-out-of-envoy", headers=[("x-envoy-upstream-rq-timeout-ms", "1"), ("x-envoy-max-retries", "9")]),
    Row(id="path-of-envoy", headers=[("x-envoy-original-path", "/"), ("x-original-url", "/"), ("x-rewrite-url", "/")]),
    Row(id="method-of-another", headers=[("x-http-method-override", "GET")]),
    Row(id="forwarded", headers=[("x-forwarded-proto", "http"), ("x-forwarded-for", "1.2.3.4"), ("forwarded", "a")]),
    Row(id="hop-header-that-is-named", headers=[("a", "b"), ("connection", "a, close")], h1_only=True),
    Row(id="hop-of-our-own", headers=[("connection", "x-kr-epoch, x-kr-shard")], h1_only=True),
    Row(id="clear-text-upgrade", headers=[("connection", "upgrade"), ("upgrade", "h2c")], h1_only=True),
    Row(id="trailers", headers=[("te", "trailers")]),
    Row(id="outcome-of-the-callers", headers=[("x-kruntime-outcome", "rejected"), ("x-kruntime-retry-safe", "true")]),
    Row(id="sixteen-kibibytes-nearly", headers=[("a", "b" * 12_000)]),
    Row(id="sixty-headers-nearly", headers=[(f"a{n}", "b") for n in range(50)]),
]


@pytest.mark.parametrize(("row", "protocol"), params(HARMLESS))
def test_harmless(table: Target, row: Row, protocol: str) -> None:
    """None of it changes what is called, or what the call is told."""
    check_served(table, row, protocol)
