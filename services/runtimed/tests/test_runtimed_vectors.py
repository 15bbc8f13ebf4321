"""Golden exchanges on the functions socket, from the calling side; see the Runtime Server's tests of the same file."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.outcomes import Failure
from kruntimes.functions.wire.events import Result
from kruntimes.functions.wire.invocations import CALL_LIMITS
from kruntimes.functions.wire.results import ResultDecoder
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.invocation import Answer, Invocation
from kruntimes.runtimed.linkcodes import answer_of, frame_of

VECTORS = Path(__file__).parents[2] / "functions" / "tests" / "vectors" / "socket.json"


def cases() -> list[dict[str, Any]]:
    return json.loads(VECTORS.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_runtimed_asks_in_these_bytes_and_reads_the_answer(case: dict[str, Any]) -> None:
    held = Held(key="ns/run", epoch=Epoch(run_uid="u", attempt=2, pod_uid="p"), since=0.0)
    held.registration_id = "REGISTRATION"
    asked = case["asked"]
    invocation = Invocation(
        id=asked["id"], body=base64.b64decode(asked["body"]), content_type=asked["contentType"],
        seconds=asked["millis"] / 1000,
    )  # fmt: skip
    frame = frame_of(held, invocation, tx=case["transaction"])
    assert frame == base64.b64decode(case["request"])
    (result,) = ResultDecoder(CALL_LIMITS).feed(base64.b64decode(case["result"]))
    assert isinstance(result, Result)
    assert meaning(answer_of(result, invocation_id=asked["id"])) == case["means"]


def meaning(answer: Answer | Failure) -> dict[str, object]:
    if isinstance(answer, Failure):
        return {"status": answer.kind.status, "reason": answer.kind.reason, "message": answer.message}
    return {
        "status": 200, "body": base64.b64encode(answer.output).decode(), "contentType": answer.content_type,
        "outputs": dict(answer.outputs), "logTail": answer.log_tail,
    }  # fmt: skip
