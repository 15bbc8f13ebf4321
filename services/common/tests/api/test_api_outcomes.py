"""How a request can end, and the one document that says so (design §6)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kruntimes.common.api import outcomes, outputs
from kruntimes.common.api.outcomes import Failure, Kind, Outcome

KINDS = {name: value for name, value in vars(outcomes).items() if isinstance(value, Kind)}

BY_STATUS = {
    400: "rejected",
    401: "rejected",
    403: "rejected",
    404: "rejected",
    405: "rejected",
    408: "rejected",
    413: "rejected",
    426: "rejected",
    429: "rejected",
    431: "rejected",
    499: "cancelled",
    500: "function_error",
    502: "unknown",
    503: "not_dispatched",
    504: "timeout",
}
"""The table of design §6."""


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_each_status_has_the_outcome_of_the_table(kind: Kind) -> None:
    assert BY_STATUS[kind.status] == kind.outcome.value
    assert kind.reason.isalnum() and kind.reason[0].isupper()


def test_each_status_of_the_table_can_be_given_and_each_reason_once() -> None:
    assert {kind.status for kind in KINDS.values()} == set(BY_STATUS)
    assert len({kind.reason for kind in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize("outcome", Outcome)
def test_only_what_certainly_did_not_run_is_safe_to_repeat(outcome: Outcome) -> None:
    assert outcome.retry_safe is (outcome.value in ("rejected", "not_dispatched"))


def test_the_document() -> None:
    failure = Failure(
        kind=outcomes.IN_FLIGHT,
        message="An invocation of this Run is in flight.",
        component="runtimed",
        invocation_id="a-1",
        retry_after=1,
        details={"since": 3},
    )
    assert json.loads(failure.body()) == {
        "error": {
            "reason": "InvocationInFlight",
            "message": "An invocation of this Run is in flight.",
            "component": "runtimed",
            "invocationId": "a-1",
            "outcome": "rejected",
            "retrySafe": True,
            "details": {"since": 3},
        }
    }
    assert failure.headers() == {
        "content-type": "application/json",
        "x-kruntime-outcome": "rejected",
        "x-kruntime-retry-safe": "true",
        "x-kruntime-invocation-id": "a-1",
        "retry-after": "1",
    }


def test_the_document_of_a_request_that_could_not_be_read() -> None:
    failure = Failure(kind=outcomes.OUTCOME_UNKNOWN, message="Gone.", component="envoy")
    body = json.loads(failure.body())["error"]
    assert (body["invocationId"], body["details"], body["retrySafe"]) == (None, {}, False)
    assert "x-kruntime-invocation-id" not in failure.headers() and "retry-after" not in failure.headers()


@pytest.mark.parametrize(
    ("kind", "header", "value"),
    [(outcomes.UNAUTHENTICATED, "www-authenticate", "Bearer"), (outcomes.METHOD_NOT_ALLOWED, "allow", "POST")],
)
def test_what_http_demands_beside_a_status(kind: Kind, header: str, value: str) -> None:
    assert Failure(kind=kind, message="No.", component="authz").headers()[header] == value


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("text", ["", 'a "quoted"\nline', "é" * 100, "\x00"])
def test_every_failure_is_one_json_document(kind: Kind, text: str) -> None:
    failure = Failure(kind=kind, message=text, component="authz", invocation_id="x", details={"traceback": text})
    assert json.loads(failure.body())["error"]["message"] == text
    assert all(value.isascii() and value.isprintable() for value in failure.headers().values())


@pytest.mark.parametrize("value", ["a", "A-1", "~!{}", "a" * 128, "a,b", '"'])
def test_invocation_ids(value: str) -> None:
    assert outcomes.valid_invocation_id(value)


@pytest.mark.parametrize("value", ["", "a" * 129, "a b", " a", "a\n", "\x7f", "é", "a\tb", "\u0661"])
def test_what_is_no_invocation_id(value: str) -> None:
    assert not outcomes.valid_invocation_id(value)


@pytest.mark.parametrize(
    ("value", "seconds"), [(None, 60), ("1", 0.001), ("250", 0.25), ("900000", 900), ("000000005", 0.005)]
)
def test_the_deadline_that_a_caller_asks_for(value: str | None, seconds: float) -> None:
    assert outcomes.parse_timeout_ms(value, default=60, maximum=900) == seconds


@pytest.mark.parametrize(
    "value", ["", "0", "-1", "+1", "900001", "1.5", "1e3", "1_0", " 1", "1\n", "5s", "\u0661", "9" * 10, "nan", "²"]
)
def test_a_deadline_that_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="X-Kruntime-Timeout-Ms"):
        outcomes.parse_timeout_ms(value, default=60, maximum=900)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, None),
        ({"k" * 128: "v" * 8192}, None),
        ({"é" * 64: "é" * 4096}, None),
        ({f"{i}": "" for i in range(64)}, None),
        ({f"{i:04}": "v" * 1020 for i in range(64)}, None),
        ({f"{i:04}": "v" * (1020 + (i == 7)) for i in range(64)}, "the outputs have 65537 bytes"),
        ({f"{i}": "" for i in range(65)}, "there are 65 outputs"),
        ({"": ""}, "the key of output 1 has 0 bytes"),
        ({"a": "", "k" * 129: ""}, "the key of output 2 has 129 bytes"),
        ({"é" * 65: ""}, "the key of output 1 has 130 bytes"),
        ({"a": "v" * 8193}, "the value of output 1 has 8193 bytes"),
        ({"a": "é" * 4097}, "the value of output 1 has 8194 bytes"),
        ({"a": "\ud800" * 2731}, "the value of output 1 has 8193 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_outputs_are_bounded_in_bytes(given: dict[str, str], said: str | None) -> None:
    told = outputs.violation(given)
    assert told is None if said is None else told is not None and told.startswith(said)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=140), st.text(max_size=40), max_size=66))
def test_outputs_that_pass_keep_every_bound(given: dict[str, str]) -> None:
    kept = (
        len(given) <= 64
        and all(0 < len(key.encode("utf-8", "surrogatepass")) <= 128 for key in given)
        and sum(len((key + value).encode("utf-8", "surrogatepass")) for key, value in given.items()) <= 65536
    )
    assert (outputs.violation(given) is None) is kept
