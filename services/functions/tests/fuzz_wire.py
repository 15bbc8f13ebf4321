"""A fuzzer of both decoders: nothing raises, nothing is held beyond the limits, cutting never changes the events.

    python services/functions/tests/fuzz_wire.py --inputs 5000000 [--seed N]

Inputs are made of pieces of the protocol, whole and damaged, and of noise. The tests run a few
thousand of the same inputs.
"""

import argparse
import random
import time

from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.events import CallEvent, Mode, ResultEvent, Violation
from kruntimes.functions.wire.limits import WireLimits
from kruntimes.functions.wire.results import ResultDecoder

LIMITS = WireLimits(line=80, payload=60, body=60, meta=30, skip=200)
HELD = LIMITS.line + LIMITS.payload + 2 + 256
"""A line, a payload with its line end, and the longest chunk that was just pushed."""
PIECES = [
    b"FUNCTION tx1 10 fn 0 s\n", b"FUNCTION tx1 10 \"fn 'a' \"\"b\"\"\" 0x7 'm=1,r=2' text/plain\r\n",
    b"FUNCTION_PAYLOAD tx2 5 'a b' 0 s text/plain\n", b"FUNCTION_PAYLOAD tx3 x a 0 s\n",
    b'FUNCTION_PAYLOAD tx4 5 "a len=7" 0 s t\n', b'FUNCTION_PAYLOAD tx5 5 "a len=90" 0 s t\n',
    b'FUNCTION_PAYLOAD tx6 5 "a len=0" 0 s t\n\nFUNCTION_PAYLOAD_END\n', b"FUNCTION_PAYLOAD_END\n",
    b"FUNCTION_PAYLOAD_END\r\n", b"\nFUNCTION_PAYLOAD_END\n", b" FUNCTION_PAYLOAD_END\n", b"FUNCTION_CANCEL tx2\n",
    b"FUNCTION_CANCEL 'tx4'\n", b"FUNCTION_CANCEL\n", b"FUNCTION_PROGRESS tx1 1 2\n", b"FUNCTION_PROGRESS tx2\n",
    b"FUNCTION_X\n", b"FUNCTION\n", b"FUNCTION ", b"QUIT\n", b"QUIT", b"QUIT\r\n", b"body\n", b"\r\n", b"\n", b" ",
    b'"',     b"'", b"\r", b"x" * 79, b"x" * 90, b"\xff\x00", b"\x00", "é ".encode(),
    b"FUNCTION_RESULT_BEGIN t 200 a 0 meta=1 len=2\n", b"abc\nFUNCTION_RESULT_END\n", b"FUNCTION_RESULT_END\n",
    b"FUNCTION_RESULT_BEGIN t 200 a 0 meta=0 len=0\n\nFUNCTION_RESULT_END\n",
]  # fmt: skip


def check(data: bytes) -> None:
    """Tries one input: two bytes say which decoder and how it is cut. Raises AssertionError for what must not be."""
    if len(data) < 2:
        return
    kind, cut, stream = data[0] % 3, data[1] or 256, data[2:]
    if kind == 2:
        _check_results(stream, cut)
    else:
        _check_calls(Mode.STDIO if kind == 0 else Mode.LINK, stream, cut)


def _check_calls(mode: Mode, stream: bytes, cut: int) -> None:
    whole, pieces = CallDecoder(mode, LIMITS), CallDecoder(mode, LIMITS)
    expected = [*whole.feed(stream), *whole.eof()]
    got: list[CallEvent] = []
    for at in range(0, len(stream), cut):
        got += pieces.feed(stream[at : at + cut])
        assert len(pieces._inbox) + len(pieces._body) <= HELD, "more is held than the limits allow"
    got += pieces.eof()
    assert got == expected, "cutting changed the events"
    assert not pieces.feed(b"FUNCTION tx 1 f 0 s\n"), "input was read after its end"
    if mode is Mode.LINK and (breaks := [n for n, event in enumerate(expected) if isinstance(event, Violation)]):
        later = [type(event).__name__ for event in expected[breaks[0] + 1 :]]
        assert not later, f"a broken stream was read on: {later}"


def _check_results(stream: bytes, cut: int) -> None:
    whole, pieces = ResultDecoder(LIMITS), ResultDecoder(LIMITS)
    expected: list[ResultEvent] = whole.feed(stream)
    got: list[ResultEvent] = []
    for at in range(0, len(stream), cut):
        got += pieces.feed(stream[at : at + cut])
        assert len(pieces._inbox) <= LIMITS.meta + LIMITS.body + LIMITS.line + 256, "more is held than allowed"
    assert got == expected, "cutting changed the results"


def make(rng: random.Random) -> bytes:
    """One input."""
    parts = [bytes((rng.randrange(3), rng.choice((1, 2, 3, 5, 7, 16, 40, 255))))]
    for _ in range(rng.randrange(1, 9)):
        draw = rng.random()
        if draw < 0.8:
            piece = rng.choice(PIECES)
            if draw > 0.7:
                at = rng.randrange(len(piece) + 1)
                piece = piece[:at] + rng.randbytes(rng.randrange(3)) + piece[at + rng.randrange(2) :]
        else:
            piece = rng.randbytes(rng.randrange(12))
        parts.append(piece)
    return b"".join(parts)


def run(inputs: int, seed: int) -> None:
    """Tries *inputs* random inputs; what fails is raised with the input in the message."""
    rng = random.Random(seed)
    for _ in range(inputs):
        data = make(rng)
        try:
            check(data)
        except Exception as error:
            raise AssertionError(f"{data!r}: {error}") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    done = 0
    while done < options.inputs:
        step = min(100_000, options.inputs - done)
        run(step, options.seed + done)
        done += step
        print(f"{done:,} inputs in {time.perf_counter() - began:,.0f} s", flush=True)


if __name__ == "__main__":
    main()
