"""Every row of the executor.v1 code table, for callers, for slots, and for registrations."""

import grpc
import pytest

from kruntimes.common.api import outcomes
from kruntimes.common.api.outcomes import Kind
from kruntimes.common.api.reasons import Reason
from kruntimes.runtimed.codes import (
    KINDS,
    MESSAGE_CHARS,
    PEER_CODES,
    Info,
    describe,
    details_of,
    lost,
    outcome_of,
    peer_outcome_of,
    registration_ending,
    settled,
)

OURS = Info(reason="X")
RAISED = Info(reason="FunctionError", metadata={"type": "ValueError", "message": "bad", "traceback": "File …"})


@pytest.mark.parametrize(
    ("code", "info", "connected", "text", "expected"),
    [
        pytest.param("INVALID_ARGUMENT", None, True, "", outcomes.BAD_INPUT, id="bad-input"),
        pytest.param("NOT_FOUND", None, True, "", outcomes.NOT_READY, id="the-server-forgot-it"),
        pytest.param("FAILED_PRECONDITION", None, True, "", outcomes.NOT_READY, id="stale-draining-unready"),
        pytest.param("RESOURCE_EXHAUSTED", OURS, True, "", outcomes.IN_FLIGHT, id="our-lane"),
        pytest.param("RESOURCE_EXHAUSTED", None, True, "busy", outcomes.IN_FLIGHT, id="a-foreign-lane"),
        pytest.param(
            "RESOURCE_EXHAUSTED",
            None,
            True,
            "CLIENT: Received message larger than max (2 vs. 1)",
            outcomes.OUTCOME_UNKNOWN,
            id="grpc's-message-limit",
        ),
        pytest.param(
            "RESOURCE_EXHAUSTED",
            None,
            True,
            "received metadata size exceeds soft limit (9000 vs. 8192)",
            outcomes.OUTCOME_UNKNOWN,
            id="grpc's-metadata-limit",
        ),
        pytest.param("DEADLINE_EXCEEDED", None, True, "", outcomes.DEADLINE_EXCEEDED, id="deadline"),
        pytest.param("DEADLINE_EXCEEDED", OURS, True, "", outcomes.DEADLINE_EXCEEDED, id="deadline-of-ours"),
        pytest.param("UNAVAILABLE", OURS, True, "", outcomes.NOT_READY, id="cannot-accept-work"),
        pytest.param("UNAVAILABLE", None, False, "", outcomes.OWNER_UNREACHABLE, id="never-connected"),
        pytest.param("UNAVAILABLE", None, True, "", outcomes.OUTCOME_UNKNOWN, id="killed-in-the-middle"),
        pytest.param("UNKNOWN", RAISED, True, "", outcomes.FUNCTION_ERROR, id="the-handler-raised"),
        pytest.param("INTERNAL", RAISED, True, "", outcomes.FUNCTION_ERROR, id="the-handler-broke"),
        pytest.param("UNKNOWN", None, True, "boom", outcomes.FUNCTION_ERROR, id="a-foreign-handler-raised"),
        pytest.param("INTERNAL", None, True, "boom", outcomes.FUNCTION_ERROR, id="a-foreign-handler-broke"),
        pytest.param(
            "INTERNAL", None, True, "Received RST_STREAM with error code 2", outcomes.OUTCOME_UNKNOWN, id="reset"
        ),
        pytest.param("UNKNOWN", None, True, "Stream removed", outcomes.OUTCOME_UNKNOWN, id="stream-removed"),
        pytest.param("CANCELLED", OURS, True, "", outcomes.CANCELLED, id="cancelled"),
        pytest.param("UNIMPLEMENTED", None, True, "", outcomes.NOT_READY, id="no-such-method"),
        pytest.param("ALREADY_EXISTS", None, True, "", outcomes.OUTCOME_UNKNOWN, id="out-of-contract"),
        pytest.param("DATA_LOSS", None, True, "", outcomes.OUTCOME_UNKNOWN, id="anything-else"),
        pytest.param("DATA_LOSS", OURS, True, "", outcomes.OUTCOME_UNKNOWN, id="anything-else-of-ours"),
    ],
)
def test_outcome(code: str, info: Info | None, connected: bool, text: str, expected: Kind) -> None:
    assert outcome_of(code, info, connected, text) is expected


@pytest.mark.parametrize("code", [code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
@pytest.mark.parametrize("connected", [True, False])
def test_only_what_certainly_did_not_run_is_safe_to_repeat(code: str, connected: bool) -> None:
    kind = outcome_of(code, None, connected)
    if kind.outcome.retry_safe:
        proofs = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"}
        assert code in proofs or not connected


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.reason)
def test_every_kind_passes_the_hop_unchanged(kind: Kind) -> None:
    code = PEER_CODES.get(kind.status, "UNKNOWN")
    assert code in grpc.StatusCode.__members__
    assert peer_outcome_of(code, Info(reason=kind.reason), connected=True) is kind


def test_a_peer_that_was_lost_is_not_an_answer() -> None:
    assert peer_outcome_of("UNAVAILABLE", None, connected=True) is outcomes.OUTCOME_UNKNOWN
    assert peer_outcome_of("UNAVAILABLE", None, connected=False) is outcomes.OWNER_UNREACHABLE


@pytest.mark.parametrize(
    ("code", "info", "connected", "expected"),
    [
        pytest.param("UNKNOWN", RAISED, True, True, id="the-server-says-how-it-ended"),
        pytest.param("UNKNOWN", None, True, False, id="a-stranger's-unknown-may-be-a-broken-stream"),
        pytest.param("DEADLINE_EXCEEDED", None, True, False, id="our-own-timer"),
        pytest.param("CANCELLED", None, True, False, id="our-own-cancel"),
        pytest.param("UNAVAILABLE", None, True, False, id="lost"),
        pytest.param("UNAVAILABLE", None, False, True, id="never-sent"),
        pytest.param("RESOURCE_EXHAUSTED", None, True, False, id="someone-else's-work-may-be-there"),
        pytest.param("NOT_FOUND", None, True, True, id="no-registration-no-work"),
    ],
)
def test_settled(code: str, info: Info | None, connected: bool, expected: bool) -> None:
    assert settled(code, info, connected) is expected


def test_lost_registrations_are_looked_at() -> None:
    assert lost("NOT_FOUND", connected=True)
    assert lost("UNAVAILABLE", connected=True)
    assert not lost("UNKNOWN", connected=True)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("UNAVAILABLE", None, id="uncertain"),
        pytest.param("DEADLINE_EXCEEDED", None, id="late"),
        pytest.param("CANCELLED", None, id="broken-off"),
        pytest.param("UNIMPLEMENTED", Reason.FUNCTION_UNSUPPORTED, id="no-functions-there"),
        pytest.param("ALREADY_EXISTS", Reason.REGISTRATION_FAILED, id="other-digest"),
        pytest.param("INVALID_ARGUMENT", Reason.REGISTRATION_FAILED, id="bad-handler"),
        pytest.param("FAILED_PRECONDITION", Reason.REGISTRATION_FAILED, id="lower-attempt"),
        pytest.param("UNKNOWN", Reason.REGISTRATION_FAILED, id="import-failed"),
        pytest.param("RESOURCE_EXHAUSTED", Reason.RUNTIME_SERVER_FAILED, id="no-room"),
    ],
)
def test_registration(code: str, reason: Reason | None) -> None:
    ending = registration_ending(code, None, "text")
    assert (ending.reason if ending else None) is reason


def test_texts_are_bounded_and_tell_type_from_message() -> None:
    assert describe(RAISED, "ignored") == "ValueError: bad"
    assert describe(Info(reason="FunctionError", metadata={"type": "AssertionError"}), "failed") == "AssertionError"
    assert describe(Info(reason="FunctionError", metadata={}), "failed") == "failed"
    assert describe(None, "x" * 5000) == "x" * (MESSAGE_CHARS - 1) + "…"
    assert details_of(RAISED) == {"type": "ValueError", "message": "bad", "traceback": "File …"}
    assert details_of(None) == {}
