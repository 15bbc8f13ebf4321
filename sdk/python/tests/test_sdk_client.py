"""The two clients against a real TLS server: what they send, what they return, what they raise."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.sdk_server import Reply, Server, failure, serving

from kruntimes.common.api.outcomes import Outcome
from kruntimes.sdk import errors, kubeconfig, manifests, wire
from kruntimes.sdk.aio import AsyncClient
from kruntimes.sdk.client import Client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as state:
        yield state


class Both:
    """Runs a call on either client, so that every case below holds for both."""

    def __init__(self, kind: str, server: Server) -> None:
        self.kind, self.server = kind, server

    def __call__(self, method: str, *args: Any, token: str | None = None, **kwargs: Any) -> Any:
        path = self.server.folder / "kubeconfig"
        access = kubeconfig.load(path if path.exists() else self.server.kubeconfig())
        if self.kind == "sync":
            with Client(access, token=token) as client:
                return getattr(client, method)(*args, **kwargs)

        async def run() -> Any:
            async with AsyncClient(access, token=token) as client:
                return await getattr(client, method)(*args, **kwargs)

        # A thread of its own, since asyncio.run takes the loop of pytest's plugin away from this one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, run()).result()


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, server: Server) -> Both:
    return Both(request.param, server)


def test_a_function_is_called_by_name_with_the_bundle_of_its_endpoint(client: Both, server: Server) -> None:
    server.add_run("hello")
    done = client("invoke", "hello", b'{"name": "you"}', invocation_id="mine", timeout=2.5)
    assert done.json() == {"hello": "you"}
    assert done.outcome is Outcome.COMPLETED
    method, path, headers, body = server.calls[-1]
    assert (method, body) == ("POST", b'{"name": "you"}')
    assert path.endswith(":invoke")
    assert headers["authorization"] == "Bearer t-1"
    assert headers["x-kruntime-invocation-id"] == "mine"
    assert headers["x-kruntime-timeout-ms"] == "2500"


def test_a_token_of_its_own_is_used_for_calls_and_not_for_the_api(client: Both, server: Server) -> None:
    server.add_run("hello")
    client("invoke", "hello", token="t-2")
    assert [call[2]["authorization"] for call in server.calls] == ["Bearer t-1", "Bearer t-2"]


@pytest.mark.parametrize(
    ("reply", "kind", "safe"),
    [
        pytest.param(failure(403, "rejected", "Forbidden"), errors.Rejected, True, id="rejected"),
        pytest.param(failure(429, "rejected", "InvocationInFlight"), errors.Rejected, True, id="overlap"),
        pytest.param(failure(503, "not_dispatched", "NotReady"), errors.NotDispatched, True, id="not-dispatched"),
        pytest.param(failure(500, "function_error", "FunctionError"), errors.FunctionError, False, id="function"),
        pytest.param(failure(502, "unknown", "OutcomeUnknown"), errors.OutcomeUnknown, False, id="unknown"),
        pytest.param(failure(504, "timeout", "DeadlineExceeded"), errors.InvocationTimeout, False, id="timeout"),
        pytest.param(failure(499, "cancelled", "Cancelled"), errors.InvocationCancelled, False, id="cancelled"),
        pytest.param(Reply(502, b"<html>", {}), errors.OutcomeUnknown, False, id="a-proxy-proves-nothing"),
        pytest.param(Reply(503, b"{}", {}), errors.OutcomeUnknown, False, id="not-even-with-503"),
        pytest.param(Reply(fault="reset"), errors.OutcomeUnknown, False, id="cut-after-the-request"),
    ],
)
def test_every_answer_is_its_own_failure_and_nothing_is_repeated(
    client: Both, server: Server, reply: Reply, kind: type[errors.Failed], safe: bool
) -> None:
    server.add_run("hello")
    server.reply = reply
    with pytest.raises(errors.Failed) as caught:
        client("invoke", "hello", invocation_id="i-1")
    assert type(caught.value) is kind
    assert caught.value.retry_safe is safe
    assert caught.value.invocation_id == "i-1"
    assert len([call for call in server.calls if call[1].startswith("/v1/")]) == 1


def test_no_connection_is_not_dispatched(client: Both, server: Server) -> None:
    with pytest.raises(errors.NotDispatched):
        client("invoke_url", "https://127.0.0.1:1/v1/namespaces/d/runtimes/r/functions/u:invoke")


def test_an_endpoint_that_our_bundle_does_not_vouch_for_gets_no_token(client: Both, server: Server) -> None:
    server.add_run("hello")
    url = server.runs["hello"]["status"]["endpoint"]["url"]
    with pytest.raises(errors.NotDispatched, match=r"(?i)certificate"):
        client("invoke_url", url)
    assert server.calls == []


def test_a_token_never_leaves_in_the_clear(client: Both) -> None:
    with pytest.raises(ValueError, match="https"):
        client("invoke_url", "http://127.0.0.1:1/")


def test_without_a_token_the_error_says_how_to_get_one(client: Both, server: Server) -> None:
    server.kubeconfig(**{"client-certificate-data": ""})
    server.add_run("hello")
    with pytest.raises(errors.ConfigError, match="KRT_TOKEN"):
        client("invoke", "hello")


@pytest.mark.parametrize(
    ("run", "state", "raised"),
    [
        pytest.param({}, "ready", None, id="ready"),
        pytest.param({"phase": "Running", "ready": False}, "ready", errors.NotReadyError, id="not-yet"),
        pytest.param({"phase": "Failed", "ready": False}, "ready", errors.EndedError, id="never-again"),
        pytest.param({"phase": "Failed", "ready": False}, "ended", None, id="ended"),
        pytest.param(None, "deleted", None, id="gone"),
        pytest.param(None, "ready", errors.NotFoundError, id="there-is-none"),
    ],
)
def test_waiting_for_a_state(
    client: Both, server: Server, run: dict[str, Any] | None, state: str, raised: type[Exception] | None
) -> None:
    if run is not None:
        server.add_run("hello", **run)
    if raised is None:
        client("wait", "hello", state, timeout=5)
    else:
        with pytest.raises(raised):
            client("wait", "hello", state, timeout=0.1)


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("Scheduled", r"is Scheduled and has no endpoint yet$"),
        ("Failed", r"ended as Failed before it had an endpoint: no f$"),
    ],
)
def test_without_an_endpoint_the_error_says_whether_one_may_come(
    client: Both, server: Server, phase: str, said: str
) -> None:
    server.add_run("hello", phase=phase, ready=False, endpoint=False)
    server.runs["hello"]["status"]["message"] = "no f"
    with pytest.raises(errors.NotReadyError, match=said):
        client("invoke", "hello")


def test_a_run_is_declared_read_and_deleted(client: Both, server: Server) -> None:
    manifest = manifests.function_run(runtime="python", handler="m.f", source="x = 1\n", inline_path="My File.py")
    made = client("create", manifest)
    assert made.metadata.name == "my-file-x"
    assert client("get", "my-file-x").spec.source.inline == "x = 1\n"
    client("delete", "my-file-x")
    with pytest.raises(errors.NotFoundError, match="not found"):
        client("get", "my-file-x")


@pytest.mark.parametrize("name", ["../pods", "UPPER", "a b", ""])
def test_a_name_cannot_reach_another_path(name: str) -> None:
    with pytest.raises(errors.ApiError, match="not a name"):
        wire.runs_path("default", name)


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        pytest.param({"body": b"x" * (1024 * 1024 + 1)}, "1048576 is the limit", id="too-large"),
        pytest.param({"body": b"", "invocation_id": "a b"}, "visible ASCII", id="bad-id"),
        pytest.param({"body": b"", "timeout": 0.0}, "above 0", id="no-time"),
    ],
)
def test_what_the_platform_would_refuse_is_not_sent(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wire.call("https://gateway", token="t", **kwargs)


def test_a_failure_shows_no_token() -> None:
    made = wire.call("https://gateway/x", token="secret-token", body=b"{}")
    assert "secret-token" not in repr(made)
    access = kubeconfig.Access(server="https://x", static_token="secret-token", key_pem="secret-key")
    assert "secret" not in repr(access)


def test_the_cancel_path_quotes_the_id() -> None:
    url = wire.cancel_url("https://g/v1/namespaces/d/runtimes/r/functions/u:invoke", "a/b:c")
    assert url == "https://g/v1/namespaces/d/runtimes/r/functions/u/invocations/a%2Fb%3Ac:cancel"


def test_json_of_the_failure_document_is_kept(client: Both, server: Server) -> None:
    server.add_run("hello")
    server.reply = failure(500, "function_error", "FunctionError", type="ValueError", traceback="Traceback …")
    server.reply.headers["retry-after"] = "3"
    with pytest.raises(errors.FunctionError) as caught:
        client("invoke", "hello")
    assert caught.value.details["type"] == "ValueError"
    assert caught.value.retry_after == 3
    assert json.loads(server.reply.body)["error"]["message"] == str(caught.value)
