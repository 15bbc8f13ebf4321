"""Golden vectors of the functions protocol: what other implementations can be tried against.

`vectors/calls.json` and `vectors/results.json`: for each case its mode, the bytes (base64) and the events that they
mean; `encoded` says whether our encoder writes exactly these bytes for that one event. `python -m
tests.test_wire_golden` with the test folder on the path writes them anew, after a change that is meant.
"""

import base64
import json
from enum import Enum
from pathlib import Path

import pytest

from kruntimes.functions.wire.calls import CallDecoder
from kruntimes.functions.wire.encode import encode_call, encode_cancel, encode_progress, encode_quit, encode_result
from kruntimes.functions.wire.events import Call, Cancel, Mode, Progress, Quit, Result
from kruntimes.functions.wire.invocations import invocation_call
from kruntimes.functions.wire.results import ResultDecoder

FOLDER = Path(__file__).parent / "vectors"
PLAIN = Call(uid="0123456789abcdef0123456789abcdef", timeout=60, function="processes", args=("info", "top:10"),
             access="0x13", source="method=api,role=admin")  # fmt: skip
PAYLOAD = PLAIN._replace(content_type="application/json", payload=b'{"a":1}\n\n  b')
INVOCATION = invocation_call(
    tx="i1", registration="8f3c", invocation_id="order 17/é", attempt=2, millis=1500, payload=b"\nQUIT\n\x00\xff",
    content_type="",
)  # fmt: skip
ANSWER = Result(uid="i1", code=200, content_type="text/plain; charset=utf-8", body=b"\nFUNCTION_RESULT_END\n",
                expires=1700000000, meta=b'{"outputs":{}}')  # fmt: skip

ENCODED = {
    "calls": {
        "stdio call": (Mode.STDIO, encode_call(PLAIN, Mode.STDIO)),
        "stdio payload": (Mode.STDIO, encode_call(PAYLOAD, Mode.STDIO)),
        "stdio empty payload": (Mode.STDIO, encode_call(PAYLOAD._replace(payload=b""), Mode.STDIO)),
        "link payload": (Mode.LINK, encode_call(PAYLOAD, Mode.LINK)),
        "link invocation with hostile bytes": (Mode.LINK, encode_call(INVOCATION, Mode.LINK)),
        "cancel": (Mode.LINK, encode_cancel("i1")),
        "progress": (Mode.STDIO, encode_progress("i1", done=3, total=10)),
        "quit": (Mode.STDIO, encode_quit()),
    },
    "results": {
        "link answer with hostile bytes": (Mode.LINK, encode_result(ANSWER, Mode.LINK)),
        "link progress": (Mode.LINK, encode_progress("i1", done=3, total=10)),
        "link empty answer": (Mode.LINK, encode_result(Result(uid="i2", code=499, content_type=""), Mode.LINK)),
    },
}
READ = {
    "calls": {
        "agent's quit without a line end": (Mode.STDIO, b"QUIT"),
        "quotes of both kinds, runs of blanks, CRLF": (
            Mode.STDIO, b"FUNCTION  t1 5 'a  \"b\" c' \"\" \"x \"\"y\"\"\"\r\n"),
        "payload with CRLF, blank lines and an end inside a line": (
            Mode.STDIO, b"FUNCTION_PAYLOAD t 5 f 0 s a/b\na\r\n\r\nx FUNCTION_PAYLOAD_END\r\nFUNCTION_PAYLOAD_END\r\n"),
        "cancel and progress inside a payload": (
            Mode.STDIO, b"FUNCTION_PAYLOAD t 5 f 0 s a/b\na\nFUNCTION_CANCEL u\nFUNCTION_PROGRESS t\nb\n"
                        b"FUNCTION_PAYLOAD_END\n"),
        "cancel of the payload being read": (
            Mode.STDIO, b"FUNCTION_PAYLOAD t 5 f 0 s a/b\na\nFUNCTION_CANCEL t\nb\nFUNCTION_PAYLOAD_END\n"),
        "quit inside a payload": (Mode.STDIO, b"FUNCTION_PAYLOAD t 5 f 0 s a/b\na\nQUIT\n"),
        "another call inside a payload": (Mode.STDIO, b"FUNCTION_PAYLOAD t 5 f 0 s a/b\na\nFUNCTION u 5 f 0 s\n"),
        "another control word inside a payload": (
            Mode.STDIO, b"FUNCTION_PAYLOAD t 5 f 0 s a/b\na\nFUNCTION_X\nb\nFUNCTION_PAYLOAD_END\n"
                        b"FUNCTION u 5 f 0 s\n"),
        "a wrong length on the link": (
            Mode.LINK, b"FUNCTION_PAYLOAD t 5 \"f len=3\" 0 s a/b\nabcd\nFUNCTION_PAYLOAD_END\n"),
        "input that ends inside a payload": (Mode.STDIO, b"FUNCTION_PAYLOAD t 5 f 0 s a/b\nhalf"),
    },
    "results": {
        "a wrong length": (
            Mode.LINK, b"FUNCTION_RESULT_BEGIN t 200 a/b 0 meta=0 len=1\nab\nFUNCTION_RESULT_END\n"),
    },
}  # fmt: skip


def events(kind: str, mode: Mode, data: bytes) -> list[dict[str, object]]:
    """What the decoder of *kind* makes of *data*, in a form for JSON."""
    if kind == "results":
        return [_plain(event) for event in ResultDecoder().feed(data)]
    decoder = CallDecoder(mode)
    return [_plain(event) for event in (*decoder.feed(data), *decoder.eof())]


def _plain(event: object) -> dict[str, object]:
    fields: dict[str, object] = {"event": type(event).__name__}
    names = event._fields if isinstance(event, Call | Result) else event.__dataclass_fields__
    for name in names:
        if name == "origin":  # never sent
            continue
        value = getattr(event, name)
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        fields[name] = value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value
    return fields


def _cases(kind: str) -> list[dict[str, object]]:
    return [
        {"name": name, "mode": mode.value, "encoded": encoded, "bytes": base64.b64encode(data).decode(),
         "events": events(kind, mode, data)}
        for encoded, group in ((True, ENCODED[kind]), (False, READ[kind]))
        for name, (mode, data) in group.items()
    ]  # fmt: skip


def write() -> None:
    """Writes the vectors anew."""
    for kind in ENCODED:
        (FOLDER / f"{kind}.json").write_text(json.dumps(_cases(kind), indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("kind", list(ENCODED))
def test_the_committed_vectors_are_what_is_written_and_read(kind: str) -> None:
    committed = json.loads((FOLDER / f"{kind}.json").read_text())
    assert committed == _cases(kind)
    for case in committed:
        if case["encoded"]:
            assert len(case["events"]) == 1, case["name"]


def test_each_encoded_vector_is_read_as_the_value_it_was_made_of() -> None:
    decoder = CallDecoder(Mode.STDIO)
    read = decoder.feed(b"".join(data for mode, data in ENCODED["calls"].values() if mode is Mode.STDIO))
    assert read == [
        PLAIN,
        PAYLOAD,
        PAYLOAD._replace(payload=b""),
        Progress(uid="i1", done=3, total=10),
        Quit(),
    ]
    link = CallDecoder(Mode.LINK).feed(b"".join(data for mode, data in ENCODED["calls"].values() if mode is Mode.LINK))
    assert [(event.uid, getattr(event, "payload", None)) for event in link if isinstance(event, Call | Cancel)] == [
        (PLAIN.uid, PAYLOAD.payload), ("i1", INVOCATION.payload), ("i1", None),
    ]  # fmt: skip


if __name__ == "__main__":
    write()
