"""What came of a call, from what the host said and how far it had to be stopped."""

import json

import pytest

from kruntimes.functions.wire.events import Result
from kruntimes.runtime import answers, bounds, faults
from kruntimes.runtime.answers import Answer
from kruntimes.runtime.host.protocol import ErrorDocument, Meta
from kruntimes.runtime.ladder import LADDERS, Action, Why, leaves_host_usable

DOCUMENT = ErrorDocument(reason="FunctionError", message="no", type="ValueError", traceback="…")


def result(code: int, *, body: bytes = b"", meta: bytes = b"") -> Result:
    return Result(uid="c1", code=code, content_type="application/json", body=body, meta=meta)


@pytest.mark.parametrize(
    ("code", "why", "stage", "expected"),
    [
        pytest.param(200, None, None, 200, id="completed"),
        pytest.param(500, None, None, 500, id="failed"),
        pytest.param(400, None, None, 400, id="bad-input"),
        pytest.param(499, None, None, 500, id="a-cancellation-of-its-own-making-is-a-failure"),
        pytest.param(200, Why.CANCELLED, Action.ASK, 200, id="completed-although-cancelled"),
        pytest.param(499, Why.CANCELLED, Action.ASK, 499, id="gave-way"),
        pytest.param(500, Why.CANCELLED, Action.TERM, 500, id="failed-while-it-was-stopped"),
        pytest.param(200, Why.DEADLINE, Action.ASK, 504, id="too-late-is-too-late"),
        pytest.param(500, Why.DEADLINE, Action.TERM, 504, id="failed-after-the-deadline"),
        pytest.param(499, Why.UNREGISTERED, Action.ASK, 499, id="unregistered"),
    ],
)
def test_results(code: int, why: Why | None, stage: Action | None, expected: int) -> None:
    body = b"1" if code == 200 else DOCUMENT.encode()
    assert answers.from_result(result(code, body=body), why, stage).code == expected


@pytest.mark.parametrize(
    ("why", "expected"), [(None, 500), (Why.DEADLINE, 504), (Why.CANCELLED, 499), (Why.UNREGISTERED, 499)]
)
def test_a_host_that_ended_never_completed(why: Why | None, expected: int) -> None:
    answer = answers.from_end("exited with status 0", why, Action.KILL if why else None)
    assert answer.code == expected
    assert answer.error is not None
    if why is None:
        assert answer.error.message == "the function's process exited with status 0 before it answered"


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(result(500, body=b"not json"), id="no-document"),
        pytest.param(result(500, body=b"[1]"), id="no-object"),
        pytest.param(result(200, meta=b"[]"), id="meta-is-no-object"),
        pytest.param(result(200, meta=json.dumps({"outputs": {"a": 1}}).encode()), id="output-is-no-text"),
        pytest.param(result(200, meta=json.dumps({"outputs": {"a": "x" * 9000}}).encode()), id="output-too-long"),
        pytest.param(
            result(200, meta=json.dumps({"outputs": {str(i): "" for i in range(65)}}).encode()), id="too-many"
        ),
        pytest.param(result(500, body=b"[" * 100_000), id="nested-without-end"),
    ],
)
def test_what_a_host_says_is_checked_again(bad: Result) -> None:
    answer = answers.from_result(bad, None, None)
    assert answer.code == 500
    assert answer.recycle


def test_outputs_and_recycling_are_read() -> None:
    meta = Meta(outputs={"key": "värde"}, recycle="70 threads were left running")
    answer = answers.from_result(result(200, body=b"{}", meta=meta.encode()), None, None)
    assert (answer.outputs, answer.recycle) == (meta.outputs, meta.recycle)


@pytest.mark.parametrize("why", list(Why))
def test_every_ladder_asks_first_and_kills_last(why: Why) -> None:
    steps = LADDERS[why]
    assert [step.action for step in steps] == [Action.ASK, Action.TERM, Action.KILL]
    assert [step.after for step in steps] == sorted(step.after for step in steps)


def test_a_host_that_took_a_signal_is_not_used_again() -> None:
    assert [leaves_host_usable(stage) for stage in (None, *Action)] == [True, True, False, False]


@pytest.mark.parametrize("text", ["x" * 100_000, "ü" * 100_000, "\ud800" * 10_000, "\x00" * 50_000])
def test_a_whole_status_stays_under_six_kibibytes(text: str) -> None:
    document = ErrorDocument.decode(
        ErrorDocument(reason="FunctionError", message=text, type=text, traceback=text).encode()
    )
    code, plain, metadata = faults.of_answer(Answer(code=500, error=document))
    # gRPC percent-encodes the plain message and sends the details as base64.
    size = len(plain) * 3 + sum(len(key) + len(value) * 4 // 3 + 4 for key, value in metadata)
    assert code.name == "UNKNOWN"
    assert size < 8 * 1024
    assert sum(len(value) for _, value in metadata) <= 6 * 1024


@pytest.mark.parametrize(
    ("outputs", "ok"),
    [
        pytest.param({}, True, id="none"),
        pytest.param({str(i): "x" * 1000 for i in range(64)}, True, id="sixty-four"),
        pytest.param({str(i): "" for i in range(65)}, False, id="sixty-five"),
        pytest.param({"k" * 128: "v" * 8192}, True, id="longest"),
        pytest.param({"k" * 129: ""}, False, id="key-too-long"),
        pytest.param({"": "x"}, False, id="empty-key"),
        pytest.param({"k": "v" * 8193}, False, id="value-too-long"),
        pytest.param({str(i): "v" * 8192 for i in range(8)}, False, id="all-together-too-long"),
        pytest.param({"k": 1}, False, id="number"),
        pytest.param({1: "k"}, False, id="number-as-key"),
        pytest.param({"k": "\ud800"}, False, id="surrogate"),
    ],
)
def test_outputs_have_bounds(outputs: dict[object, object], ok: bool) -> None:
    if ok:
        assert bounds.check_outputs(outputs) == outputs
    else:
        with pytest.raises(bounds.OutputsError):
            bounds.check_outputs(outputs)
