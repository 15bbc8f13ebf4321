"""Rows of the invoke contract's tables: what is sent, byte for byte, and what design §6 says must come back.

A row is sent over HTTP/1.1 and over HTTP/2; where HTTP/2 can only reset the stream or the connection, the row says so.
Every answer is held against everything that is promised of it, and so are the gateway's log and its counters.
"""

import asyncio
import json
import ssl
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support import Api, Gateway, eventually
from tests.http_clients import Answer, http1, http2

DOCUMENT = {"reason", "message", "component", "invocationId", "outcome", "retrySafe", "details"}
LOG_SECONDS = 30.0
"""Envoy writes its log once a second."""
AUTHZ, ENVOY, RUNTIMED = "authz", "envoy", "runtimed"
OWN, MADE, NULL = "own", "made", None
"""Whose invocation id comes back: the caller's, one that the gateway made, or none. Any other text is the id itself."""


@dataclass(frozen=True)
class Expect:
    """What comes back. component: who says it."""

    status: int
    reason: str
    component: str
    outcome: str = "rejected"
    invocation_id: str | None = OWN


@dataclass(frozen=True)
class Reset:
    """HTTP/2 has no other way to say it: the stream, or the connection, ends without an answer."""


RESET = Reset()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One request. *target* and the values may hold the fields of `Target`, as in `{path}`.

    headers: beside Host, Authorization and Content-Length, in their order. token: a name of `Target.tokens`, or None.
    h2: what HTTP/2 answers, if not the same. expect: None for what is served. chunks: a body of HTTP/1.1 as it is,
    framing included. host: the values of Host, or of :authority.
    """

    id: str
    expect: Expect | None = None
    target: str = "{path}"
    method: str = "POST"
    headers: Sequence[tuple[str, str]] = ()
    token: str | None = "user"
    body: bytes = b"{}"
    chunks: bytes | None = None
    h2: Expect | Reset | None = None
    h1_only: bool = False
    h2_only: bool = False
    version: str = "1.1"
    host: Sequence[str] = ("{authority}",)
    own_id: bool = True


@dataclass
class Target:
    """What rows speak of: a Ready Run, and callers by name."""

    gateway: Gateway
    path: str
    fields: dict[str, str]
    tokens: dict[str, str]
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    logged: dict[str, tuple[int, str]] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        for name, value in {"path": self.path, "authority": urlsplit(self.gateway.url).netloc, **self.fields}.items():
            text = text.replace("{" + name + "}", value)
        return text


def params(rows: Sequence[Row]) -> list[Any]:
    """Each row over each protocol that can carry it and has an answer to it."""
    both = [(row, "http1") for row in rows if not row.h2_only]
    both += [(row, "http2") for row in rows if not row.h1_only and row.h2 is not RESET]
    return [pytest.param(row, protocol, id=f"{row.id}-{protocol}") for row, protocol in both]


@cache
def trusting(ca: Path, protocol: str) -> ssl.SSLContext:
    """One context for each protocol: making one reads every certificate that the machine trusts."""
    return ssl.create_default_context(cafile=ca)


def send(target: Target, row: Row, protocol: str, invocation_id: str | None) -> Answer:
    """The answer to *row*."""
    return asyncio.run(exchange(target, row, protocol, invocation_id))


async def exchange(target: Target, row: Row, protocol: str, invocation_id: str | None) -> Answer:
    """As `send`."""
    where = urlsplit(target.gateway.url)
    tls = trusting(target.gateway.ca, protocol)
    headers = [(name, target.fill(value)) for name, value in row.headers]
    if row.own_id and invocation_id is not None:
        headers.append(("x-kruntime-invocation-id", invocation_id))
    if row.token is not None:
        headers.append(("authorization", f"Bearer {target.tokens[row.token]}"))
    hosts = [target.fill(value) for value in row.host]
    address: dict[str, Any] = {"tls": tls, "host": where.hostname, "name": where.hostname}
    if protocol == "http2":
        pseudo = [(":method", row.method), (":scheme", "https"), (":path", target.fill(row.target))]
        pseudo += [(":authority", host) for host in hosts]
        return await http2(where.port or 443, [*pseudo, *headers], row.body, **address)
    lines = [f"{row.method} {target.fill(row.target)} HTTP/{row.version}", *(f"host: {host}" for host in hosts)]
    lines += [f"{name}: {value}" for name, value in headers]
    if row.chunks is None and not any(name in ("content-length", "transfer-encoding") for name, _ in headers):
        lines.append(f"content-length: {len(row.body)}")
    data = "\r\n".join([*lines, "", ""]).encode("latin-1") + (row.body if row.chunks is None else row.chunks)
    return await http1(where.port or 443, [data], **address)


def check(target: Target, row: Row, protocol: str) -> None:
    """Sends *row* and holds its answer against the contract."""
    mark = f"t-{uuid.uuid4().hex}"
    answer = send(target, row, protocol, mark)
    expect = row.expect if protocol == "http1" or row.h2 is None else row.h2
    assert isinstance(expect, Expect), "a row that has an answer"
    if expect.invocation_id == OWN:
        assert row.own_id, "a row without an id of its own cannot get it back"
    seen = assert_failure(
        answer, expect, mark if expect.invocation_id == OWN else target.fill(expect.invocation_id or "")
    )
    target.answers[expect.component, expect.reason] += 1
    if expect.invocation_id in (OWN, MADE) and seen is not None:
        target.logged[seen] = (expect.status, expect.outcome)
    for token in target.tokens.values():
        assert token.encode() not in answer.body, "a token in an answer"


async def check_resets(target: Target, rows: Sequence[Row]) -> None:
    """Sends the rows that HTTP/2 can only reset, all at once: a connection that is refused closes after a second."""
    sent = [row for row in rows if row.h2 is RESET]
    answers = await asyncio.gather(*(exchange(target, row, "http2", f"t-{uuid.uuid4().hex}") for row in sent))
    wrong = {row.id: got for row, got in zip(sent, answers, strict=True) if (got.status, got.body) != (0, b"")}
    assert not wrong
    assert sent


def check_served(target: Target, row: Row, protocol: str) -> None:
    """Sends *row*, which must be served as if it were an ordinary call."""
    mark = f"t-{uuid.uuid4().hex}"
    answer = send(target, row, protocol, mark)
    assert (answer.status, answer.body) == (200, row.body), answer
    headers = answer.headers
    assert headers["x-kruntime-invocation-id"] == mark
    assert (headers["x-kruntime-outcome"], headers["x-kruntime-retry-safe"]) == ("completed", "false")
    assert not [name for name in headers if name.startswith(("x-envoy", "x-kr-", "x-powered"))], headers


def assert_failure(answer: Answer, expect: Expect, invocation_id: str) -> str | None:
    """Everything that design §6 promises of an error, with *invocation_id* unless it was made; returns the id."""
    error = answer.error
    told = (answer.status, error["reason"], error["component"], error["outcome"])
    assert told == (expect.status, expect.reason, expect.component, expect.outcome), error
    safe = expect.outcome in ("rejected", "not_dispatched")
    assert set(error) == DOCUMENT
    assert error["retrySafe"] is safe
    assert isinstance(error["message"], str) and error["message"]
    assert isinstance(error["details"], dict)
    headers = answer.headers
    assert headers["x-kruntime-outcome"] == expect.outcome
    assert headers["x-kruntime-retry-safe"] == ("true" if safe else "false")
    assert headers.get("x-kruntime-invocation-id") == error["invocationId"]
    assert ("retry-after" in headers) == (expect.status in (429, 503))
    assert ("allow" in headers) == (expect.status == 405)
    assert ("www-authenticate" in headers) == (expect.status == 401)
    assert headers["server"] == "kruntimes"
    assert not [name for name in headers if name.startswith(("x-envoy", "x-kr-", "x-powered"))], headers
    seen: str | None = error["invocationId"]
    if expect.invocation_id == MADE:
        assert seen is not None and str(uuid.UUID(seen)) == seen
    else:
        assert seen == (invocation_id or None)
    return seen


class Observer:
    """The gateway Pod's log and counters; what a test machine cannot reach is not observed."""

    def __init__(self, api: Api) -> None:
        self._api = api
        pods = (api.get("/api/v1/namespaces/kruntimes-system/pods") or {}).get("items", [])
        gateways = [pod for pod in pods if any(c["name"] == "envoy" for c in pod["spec"]["containers"])]
        self._pods = [pod for pod in gateways if "deletionTimestamp" not in pod["metadata"]]

    def envoys(self) -> dict[str, str]:
        """Envoy's figures, as Prometheus reads them, of every gateway Pod that can be reached."""
        found = {}
        for pod in self._pods:
            with suppress(httpx.TransportError):
                address = f"http://{pod['status'].get('podIP', '')}:9901/stats/prometheus"
                found[pod["metadata"]["name"]] = httpx.get(address, timeout=5, trust_env=False).text
        return found

    def counters(self) -> Counter[tuple[str, str]] | None:
        """authz's refusals by reason and Envoy's answers by class, or None where they are out of reach."""
        found: Counter[tuple[str, str]] = Counter()
        for pod in self._pods:
            ip = pod["status"].get("podIP", "")
            try:
                authz = httpx.get(f"http://{ip}:9090/metrics", timeout=5, trust_env=False).text
                envoy = httpx.get(f"http://{ip}:9901/stats/prometheus", timeout=5, trust_env=False).text
            except httpx.TransportError:
                return None
            for sample in samples(authz, "kruntimes_authz_checks_total"):
                found[AUTHZ, sample.labels["result"]] += int(sample.value)
            for sample in samples(envoy, "envoy_http_downstream_rq_xx"):
                if sample.labels.get("envoy_http_conn_manager_prefix") == "api":
                    found[ENVOY, sample.labels["envoy_response_code_class"]] += int(sample.value)
        return found

    def lines(self) -> dict[str, dict[str, Any]]:
        """The lines of Envoy's access log by invocation id."""
        found: dict[str, dict[str, Any]] = {}
        for pod in self._pods:
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log?container=envoy"
            answer = self._api.http.get(path)
            assert answer.status_code == 200, answer.text[:500]
            for text in answer.text.split("\n")[:-1]:  # what follows the last end of a line is still being written
                if text.startswith("{"):
                    line = json.loads(text)
                    found[line["invocation_id"]] = line
        return found


def samples(text: str, name: str) -> list[Any]:
    """The samples of one name in Prometheus' text format."""
    return [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]


def check_counted(before: Counter[tuple[str, str]] | None, after: Counter[tuple[str, str]] | None, t: Target) -> None:
    """Each refusal of authz was counted once under its reason, and each answer in its class by Envoy."""
    if before is None or after is None:
        return
    for (component, reason), count in t.answers.items():
        if component == AUTHZ:
            assert after[AUTHZ, reason] - before[AUTHZ, reason] == count, (reason, count)
    refused = sum(count for (component, _), count in t.answers.items() if component in (AUTHZ, ENVOY))
    grown = sum(after[ENVOY, c] - before[ENVOY, c] for c in ("4", "5"))
    assert grown >= refused


def check_logged(observer: Observer, target: Target) -> None:
    """Each answer that names an invocation has its line, with the same status and outcome, and no secret in it."""
    held: dict[str, dict[str, Any]] = {}

    def there() -> bool:
        held.update(observer.lines())
        return target.logged.keys() <= held.keys()

    eventually("a log line for each answer", there, LOG_SECONDS)
    for mark, told in target.logged.items():
        line = held[mark]
        assert (line["status"], line["outcome"]) == told, line
        assert line["component"] == ENVOY
        assert not [token for token in target.tokens.values() if token in json.dumps(line)]
