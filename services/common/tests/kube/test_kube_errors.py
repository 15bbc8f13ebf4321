"""Each answer of an API server, or of a proxy in front of it, as one exception."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.errors import Busy, Denied, NotFound
from kruntimes.common.kube import errors


def _status(code: int, reason: str, **details: object) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": "m", "details": details}).encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "retry_after"),
    [
        pytest.param(400, {}, _status(400, "BadRequest"), errors.BadRequest, None, id="400"),
        pytest.param(401, {}, _status(401, "Unauthorized"), errors.Unauthorized, None, id="401"),
        pytest.param(403, {}, _status(403, "Forbidden"), errors.Forbidden, None, id="403"),
        pytest.param(404, {}, _status(404, "NotFound"), errors.Missing, None, id="404"),
        pytest.param(404, {}, b"404 page not found\n", errors.Missing, None, id="404-unknown-kind-is-plain-text"),
        pytest.param(409, {}, _status(409, "Conflict"), errors.Conflict, None, id="409-conflict"),
        pytest.param(409, {}, _status(409, "AlreadyExists"), errors.AlreadyExists, None, id="409-name-taken"),
        pytest.param(410, {}, _status(410, "Expired"), errors.Gone, None, id="410"),
        pytest.param(422, {}, _status(422, "Invalid"), errors.Invalid, None, id="422"),
        pytest.param(429, {"Retry-After": "7"}, b"", errors.TooManyRequests, 7.0, id="429-header"),
        pytest.param(429, {}, _status(429, "x", retryAfterSeconds=3), errors.TooManyRequests, 3.0, id="429-details"),
        pytest.param(429, {"Retry-After": "1_0"}, b"", errors.TooManyRequests, None, id="429-not-a-number"),
        pytest.param(429, {"Retry-After": "-1"}, b"", errors.TooManyRequests, None, id="429-negative"),
        pytest.param(500, {}, _status(500, "InternalError"), errors.ServerError, None, id="500"),
        pytest.param(502, {}, b"<html>Bad\nGateway</html>", errors.ServerError, None, id="502-html"),
        pytest.param(503, {"Retry-After": "1"}, b"\xff\xfe", errors.ServerError, 1.0, id="503-bytes"),
        pytest.param(418, {}, b"[]", errors.ApiError, None, id="another-4xx"),
    ],
)
def test_answers(
    status: int, headers: dict[str, str], body: bytes, kind: type[errors.ApiError], retry_after: float | None
) -> None:
    error = errors.from_answer(status=status, headers=headers, body=body)
    assert type(error) is kind
    assert (error.status, error.retry_after) == (status, retry_after)


def test_errors_say_whose_fault_it_is() -> None:
    assert issubclass(errors.Missing, NotFound)
    assert issubclass(errors.Forbidden, Denied)
    assert issubclass(errors.Unauthorized, Denied)
    assert issubclass(errors.TooManyRequests, Busy)


def test_a_quoted_object_does_not_get_into_the_message() -> None:
    secret = '{\\"data\\":{\\"password\\":\\"c2VjcmV0\\"},\\"kind\\":\\"Secret\\"}' + "x" * 200
    message = f'Secret "a" is invalid: patch: Invalid value: "{secret}": json: cannot unmarshal'
    error = errors.from_status(errors._Status(reason="Invalid", message=message), status=422, retry_after=None)
    assert "c2VjcmV0" not in str(error)
    assert str(error).endswith("json: cannot unmarshal")


def test_a_short_value_stays_in_the_message() -> None:
    message = 'Run "a" is invalid: spec.timeout: Invalid value: "5x": must be a duration'
    assert message in str(errors.from_status(errors._Status(message=message), status=422, retry_after=None))


@given(st.integers(100, 599), st.binary(max_size=400))
def test_any_answer_becomes_an_error_with_a_bounded_message(status: int, body: bytes) -> None:
    assert len(errors.from_answer(status=status, headers={}, body=body).message) <= errors.MESSAGE_CHARS
