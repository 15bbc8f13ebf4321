"""Bodies: the limit to the byte, however it is declared, and framing that is none (design §6)."""

import pytest
from gateway_table import AUTHZ, ENVOY, RESET, RUNTIMED, Expect, Row, Target, check, check_resets, check_served, params

LIMIT = 1024 * 1024
DECLARED = Expect(413, "BodyTooLarge", AUTHZ)
COUNTED = Expect(413, "BodyTooLarge", ENVOY)
BROKEN = Expect(400, "BadRequest", ENVOY)
INPUT = Expect(400, "BadInput", RUNTIMED)
MAY_NOT = Expect(403, "Forbidden", AUTHZ)
ELSEWHERE = Expect(404, "NotFound", ENVOY)
OVER = ("content-length", str(LIMIT + 1))
CODING = ("transfer-encoding", "chunked")


def json_of(size: int) -> bytes:
    return b'["' + b"x" * (size - 4) + b'"]'


def chunked(body: bytes, piece: int = 60_000) -> bytes:
    pieces = (body[at : at + piece] for at in range(0, len(body), piece))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in pieces) + b"0\r\n\r\n"


def framed(id: str, chunks: bytes, expect: Expect = BROKEN, **more: object) -> Row:
    return Row(id=id, headers=[CODING], chunks=chunks, expect=expect, h1_only=True, **more)  # type: ignore[arg-type]


def declared(id: str, length: int, body: bytes, expect: Expect, **more: object) -> Row:
    """The length is declared, and less than that is sent: what comes back comes before the rest."""
    return Row(id=id, headers=[("content-length", str(length))], chunks=body, expect=expect, h1_only=True, **more)  # type: ignore[arg-type]


FULL = json_of(LIMIT)

ROWS = [
    Row(id="a-byte-too-much", body=json_of(LIMIT + 1), expect=DECLARED, h2=COUNTED),
    Row(id="thrice-too-much", body=json_of(3 * LIMIT), expect=DECLARED, h2=COUNTED),
    Row(id="too-much-of-a-stranger", body=json_of(3 * LIMIT), token="stranger", expect=MAY_NOT),
    Row(id="too-much-elsewhere", target="/x", body=json_of(3 * LIMIT), expect=ELSEWHERE),
    framed("a-byte-too-much-in-chunks", chunked(json_of(LIMIT + 1)), COUNTED),
    framed("thrice-too-much-in-chunks", chunked(json_of(3 * LIMIT)), COUNTED),
    framed("too-much-in-one-chunk", chunked(json_of(LIMIT + 1), 2 * LIMIT), COUNTED),
    declared("a-gibibyte-that-never-comes", 1 << 30, b"", DECLARED),
    declared("more-than-any-disk-holds", (1 << 63) - 1, b"x", DECLARED),
    declared("nothing-comes-of-a-stranger", 1000, b"", MAY_NOT, token="stranger"),
    declared("nothing-comes-elsewhere", 1000, b"", ELSEWHERE, target="/x"),
    Row(
        id="declared-over-http2",
        headers=[("content-length", str(LIMIT + 1))],
        body=json_of(LIMIT + 1),
        expect=DECLARED,
        h2_only=True,
    ),
    Row(id="less-than-declared-over-http2", headers=[("content-length", "10")], body=b"{}", h2=RESET, h2_only=True),
    Row(id="more-than-declared-over-http2", headers=[("content-length", "1")], body=b"{}", h2=RESET, h2_only=True),
    framed("length-of-a-chunk-is-a-word", b"zz\r\n{}\r\n0\r\n\r\n"),
    framed("length-of-a-chunk-is-negative", b"-2\r\n{}\r\n0\r\n\r\n"),
    framed("length-of-a-chunk-in-c", b"0x2\r\n{}\r\n0\r\n\r\n"),
    framed("length-of-a-chunk-is-endless", b"f" * 30 + b"\r\n{}\r\n0\r\n\r\n"),
    # Envoy skips the rest of that line, and frames anew what it has read: nobody behind it sees this framing.
    framed("chunk-longer-than-said", b"1\r\n{}\r\n0\r\n\r\n", INPUT),
    framed("chunk-of-nothing", b"\r\n{}\r\n0\r\n\r\n"),
    Row(id="not-json", body=b"{", expect=INPUT),
    Row(id="not-utf-8", body=b'"\xff"', expect=INPUT),
    Row(id="two-documents", body=b"{}{}", expect=INPUT),
    Row(id="a-null-byte", body=b"\0", expect=INPUT),
]

SERVED = [
    Row(id="at-the-limit", body=json_of(LIMIT)),
    Row(id="at-the-limit-declared", headers=[("content-length", str(LIMIT))], body=json_of(LIMIT)),
    Row(id="zeros-before-the-length", headers=[("content-length", "0002")], body=b"{}", h1_only=True),
    Row(id="in-chunks", headers=[CODING], body=b"[1]", chunks=chunked(b"[1]", 1), h1_only=True),
    Row(id="in-chunks-at-the-limit", headers=[CODING], body=FULL, chunks=chunked(FULL), h1_only=True),
    Row(id="extension-of-a-chunk", headers=[CODING], body=b"{}", chunks=b"2;a=b\r\n{}\r\n0\r\n\r\n", h1_only=True),
    Row(id="trailers", headers=[CODING], body=b"{}", chunks=b"2\r\n{}\r\n0\r\nx-kr-epoch: a\r\n\r\n", h1_only=True),
]


@pytest.mark.parametrize(("row", "protocol"), params(ROWS))
def test_bodies(table: Target, row: Row, protocol: str) -> None:
    check(table, row, protocol)


async def test_bodies_that_http2_resets(table: Target) -> None:
    await check_resets(table, ROWS)


@pytest.mark.parametrize(("row", "protocol"), params(SERVED))
def test_bodies_that_are_served(table: Target, row: Row, protocol: str) -> None:
    check_served(table, row, protocol)
