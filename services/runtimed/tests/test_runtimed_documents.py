"""Digest, envelope, endpoint, ErrorInfo and pulse: small values that others depend on."""

import base64
import json
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from google.rpc import error_details_pb2, status_pb2

from kruntimes.common.api.outcomes import ENVELOPE_TYPE
from kruntimes.common.api.views import Run
from kruntimes.runtimed.digest import registration_digest
from kruntimes.runtimed.endpoint import MAX_BUNDLE_BYTES, Endpoints
from kruntimes.runtimed.envelope import envelope, wanted
from kruntimes.runtimed.errorinfo import STATUS_BYTES, trailing
from kruntimes.runtimed.heartbeat import FENCE_SECONDS, RESTART_SECONDS, Pulse, alive, pulse
from kruntimes.runtimed.invocation import Answer

TURNED = [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]


def run(**spec: Any) -> Run:
    given = {
        "runtime": "python",
        "mode": {"function": {"handler": "handler.main"}},
        "source": {"inline": "x", "inlinePath": "handler.py"},
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
    }
    return msgspec.convert({"metadata": {"uid": "u", "namespace": "demo"}, "spec": given | spec}, Run)


def test_equal_inputs_have_equal_digests() -> None:
    digest = registration_digest(run())
    assert len(digest) == 64
    assert digest == digest.lower()
    assert digest == registration_digest(run(timeout="5s", env=TURNED))


@pytest.mark.parametrize(
    "changed",
    [
        {"source": {"inline": "y", "inlinePath": "handler.py"}},
        {"source": {"inline": "x", "inlinePath": "other.py"}},
        {"source": None},
        {"mode": {"function": {"handler": "handler.other"}}},
        {"mode": {"function": {"handler": "handler.main", "isolation": "Fork"}}},
        {"mode": {"function": {"handler": "handler.main", "idleTimeoutSeconds": 1}}},
        {"env": [{"name": "A", "value": "1"}]},
    ],
)
def test_any_other_input_has_another_digest(changed: dict[str, Any]) -> None:
    assert registration_digest(run(**changed)) != registration_digest(run())


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, False),
        ("*/*", False),
        (ENVELOPE_TYPE, True),
        (f"application/json, {ENVELOPE_TYPE};q=0.5", True),
        (f"{ENVELOPE_TYPE}+other", False),
        (f"{ENVELOPE_TYPE.title()}; v=1", True),
        (f"{ENVELOPE_TYPE}; q=0", False),
        (f"{ENVELOPE_TYPE};v=1;Q=0.000", False),
        (f"{ENVELOPE_TYPE};q=0.001", True),
    ],
)
def test_the_envelope_is_asked_for_by_name(accept: str | None, expected: bool) -> None:
    assert wanted(accept) is expected


@pytest.mark.parametrize(
    ("output", "content_type", "value", "encoding"),
    [
        (b'{"a": 1.50}', "application/json", {"a": 1.5}, None),
        (b"plain", "text/plain; charset=utf-8", "plain", None),
        (b"\xff\x00", "text/plain", base64.b64encode(b"\xff\x00").decode(), "base64"),
        (b"{broken", "application/json", base64.b64encode(b"{broken").decode(), "base64"),
        (b"\x00", "application/octet-stream", "AA==", "base64"),
    ],
)
def test_envelope(output: bytes, content_type: str, value: object, encoding: str | None) -> None:
    answer = Answer(output=output, content_type=content_type, outputs={"k": "v"}, seconds=0.0123)
    document = json.loads(envelope(answer, invocation_id="id-1"))
    assert document["output"] == value
    assert document.get("outputEncoding") == encoding
    assert (document["outputs"], document["invocationId"], document["durationMs"]) == ({"k": "v"}, "id-1", 12.3)


def test_the_endpoint_follows_the_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.crt"
    bundle.write_text("ONE")
    endpoints = Endpoints("https://gateway:8443", bundle)
    got = endpoints.of(run())
    assert got.url == "https://gateway:8443/v1/namespaces/demo/runtimes/python/functions/u:invoke"
    assert base64.b64decode(got.ca_bundle or "") == b"ONE"
    assert not endpoints.refresh()
    bundle.write_text("TWO")
    assert endpoints.refresh()
    bundle.write_bytes(b"x" * (MAX_BUNDLE_BYTES + 1))
    assert not endpoints.refresh()
    assert base64.b64decode(endpoints.of(run()).ca_bundle or "") == b"TWO"
    bundle.write_text("")
    assert endpoints.refresh()
    assert endpoints.of(run()).ca_bundle is None


def test_a_status_stays_small_enough_for_every_channel() -> None:
    big = {"type": "ValueError", "message": "m" * 9000, "traceback": "ü" * 9000}
    _, value = trailing(code=grpc.StatusCode.UNKNOWN, message="FunctionError", reason="FunctionError", metadata=big)
    assert len(value) <= STATUS_BYTES
    status = status_pb2.Status.FromString(value)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, info.domain, info.metadata["type"]) == (2, "kruntimes.io", "ValueError")
    assert info.metadata["message"] == "m" * 4096


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0, Pulse.LIVE), (29.9, Pulse.LIVE), (30, Pulse.STALE), (59.9, Pulse.STALE), (60, Pulse.FENCED)],
)
def test_pulse(age: float, expected: Pulse) -> None:
    assert pulse(last_renewed=1000.0, now=1000.0 + age) is expected


def test_before_the_first_heartbeat_nothing_is_served() -> None:
    assert pulse(last_renewed=float("-inf"), now=1.0) is Pulse.FENCED


NEVER = float("-inf")


@pytest.mark.parametrize(
    ("last_renewed", "begun", "now", "expected"),
    [
        pytest.param(NEVER, None, 99999.0, True, id="others-are-waited-for-without-end"),
        pytest.param(NEVER, 1000.0, 1000.0 + 359.9, True, id="the-first-heartbeat-has-its-time"),
        pytest.param(NEVER, 1000.0, 1000.0 + 360.0, False, id="a-token-that-is-refused-from-the-start"),
        pytest.param(5000.0, 1000.0, 5000.0 + 60.0, True, id="the-self-fence-itself-restarts-nothing"),
        pytest.param(5000.0, 1000.0, 5000.0 + 359.9, True, id="an-outage-that-may-yet-end"),
        pytest.param(5000.0, 1000.0, 5000.0 + 360.0, False, id="a-token-that-is-refused-from-now-on"),
    ],
)
def test_a_fence_that_stays_asks_for_a_restart(
    last_renewed: float, begun: float | None, now: float, expected: bool
) -> None:
    assert FENCE_SECONDS + RESTART_SECONDS == 360.0
    assert alive(last_renewed=last_renewed, begun=begun, now=now) is expected
