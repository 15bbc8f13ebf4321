"""A plain HTTP client of the Kubernetes API, for the contract suite: nothing of the product, nothing that interprets.

`Api` sends one request and returns an `Answer` whatever the status; `ok` and `refused` are the two ways to go on.
"""

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

Json = dict[str, Any]

JSON = "application/json"
YAML = "application/yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

ANSWER_SECONDS = 30.0
"""For one answer, and for one event of a watch that is due; a busy machine gets this long."""

CORE = "/api/v1"
ROOTS: Mapping[str, str] = {
    **dict.fromkeys(("replicasets",), "/apis/apps/v1"),
    **dict.fromkeys(("leases",), "/apis/coordination.k8s.io/v1"),
    **dict.fromkeys(("endpointslices",), "/apis/discovery.k8s.io/v1"),
    **dict.fromkeys(
        ("roles", "rolebindings", "clusterroles", "clusterrolebindings"), "/apis/rbac.authorization.k8s.io/v1"
    ),
    **dict.fromkeys(("certificatesigningrequests",), "/apis/certificates.k8s.io/v1"),
    **dict.fromkeys(("customresourcedefinitions",), "/apis/apiextensions.k8s.io/v1"),
    **dict.fromkeys(
        ("selfsubjectaccessreviews", "subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews"),
        "/apis/authorization.k8s.io/v1",
    ),
    **dict.fromkeys(("selfsubjectreviews", "tokenreviews"), "/apis/authentication.k8s.io/v1"),
    **dict.fromkeys(("runs", "runtimes"), "/apis/kruntimes.io/v1alpha1"),
    **dict.fromkeys(("widgets", "plains", "manies", "clusterthings", "celforms"), "/apis/contract.example/v1"),
}
"""Where each resource lives; the core group is the rest."""


def at(resource: str, namespace: str | None = None, name: str | None = None, sub: str | None = None) -> str:
    """The path of a collection, an object or a subresource; no namespace means all of them, or cluster scope."""
    steps = [ROOTS.get(resource, CORE)]
    if namespace is not None:
        steps += ["namespaces", namespace]
    steps.append(resource)
    steps += [step for step in (name, sub) if step is not None]
    return "/".join(steps)


@dataclass(frozen=True)
class Answer:
    """What the server said: the HTTP status, its headers and the body as text."""

    request: str
    code: int
    headers: httpx.Headers
    text: str

    @property
    def body(self) -> Json:
        """The body as JSON."""
        found: Json = json.loads(self.text)
        return found

    @property
    def reason(self) -> str:
        """The machine-readable word of a Status."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The sentence of a Status."""
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Field and reason of every cause, sorted; the messages are in `cause_messages`."""
        return sorted((c.get("field", ""), c.get("reason", "")) for c in self._details().get("causes") or [])

    @property
    def cause_messages(self) -> dict[str, str]:
        """The message of the causes, by field (the last one of a field)."""
        return {c.get("field", ""): c.get("message", "") for c in self._details().get("causes") or []}

    @property
    def warnings(self) -> list[str]:
        """The texts of the Warning headers (code 299), unquoted."""
        found = self.headers.get_list("warning")
        return [w.removeprefix("299 - ")[1:-1].replace('\\"', '"') for w in found]

    def _details(self) -> Json:
        found: Json = self.body.get("details") or {}
        return found

    def ok(self, code: int | None = None) -> Json:
        """The body of a success, of exactly *code* where it is given."""
        good = 200 <= self.code < 300 if code is None else self.code == code
        assert good, f"{self.request}: {self.code} {self.text[:1500]}"
        return self.body

    def refused(self, code: int, reason: str, *says: str) -> Json:
        """The Status of a refusal, whose message holds each of *says*."""
        assert (self.code, self.text[:1] == "{") == (code, True), f"{self.request}: {self.code} {self.text[:1500]}"
        body = self.body
        assert body["kind"] == "Status", self.text[:500]
        assert body["apiVersion"] == "v1"
        assert body["status"] == "Failure"
        assert body["code"] == code
        assert body.get("reason", "") == reason, self.text[:1500]
        for part in says:
            assert part in body.get("message", ""), f"{part!r} is not in {body.get('message')!r}"
        return body


class Watch:
    """An open watch: its events one by one."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> Json:
        """The next event; fails when none comes in time or the stream has ended."""
        for line in self._lines:
            event: Json = json.loads(line)
            return event
        raise AssertionError("the watch has ended")

    def rest(self) -> list[Json]:
        """Every event until the server ends the stream."""
        return [json.loads(line) for line in self._lines]

    def take(self, count: int) -> list[Json]:
        """That many events."""
        return [self.next() for _ in range(count)]

    def until(self, wanted: Callable[[Json], bool]) -> list[Json]:
        """Every event up to the one that is *wanted*, which is the last in the list."""
        seen = [self.next()]
        while not wanted(seen[-1]):
            seen.append(self.next())
        return seen


class Api:
    """One identity on one API server."""

    def __init__(self, url: str, tls: ssl.SSLContext, bare_tls: ssl.SSLContext, headers: Mapping[str, str]) -> None:
        self.url, self._tls, self._bare_tls, self._headers = url, tls, bare_tls, dict(headers)
        self.http = httpx.Client(
            base_url=url,
            verify=tls,
            headers=dict(headers),
            timeout=ANSWER_SECONDS,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=10),
        )
        self._others: dict[str, Api] = {}

    @classmethod
    def connect(cls, kubeconfig: Path) -> "Api":
        """The current context of *kubeconfig*: client certificate (file or inline) or token."""
        config = yaml.safe_load(kubeconfig.read_text())
        context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
        ca = base64.b64decode(cluster.get("certificate-authority-data", "")).decode() or None
        tls, bare = (
            ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=ca) for _ in range(2)
        )
        if "client-certificate" in user:
            tls.load_cert_chain(user["client-certificate"], user["client-key"])
        elif "client-certificate-data" in user:
            folder = kubeconfig.parent
            for name in ("client-certificate", "client-key"):
                (folder / f"contract-{name}.pem").write_bytes(base64.b64decode(user[f"{name}-data"]))
            tls.load_cert_chain(folder / "contract-client-certificate.pem", folder / "contract-client-key.pem")
        headers = {"authorization": f"Bearer {user['token']}"} if "token" in user else {}
        return cls(cluster["server"], tls, bare, headers)

    def bearer(self, token: str | None) -> "Api":
        """The same server for the bearer of *token*, with no other credential; None is nobody."""
        key = token or ""
        if key not in self._others:
            headers = {"authorization": f"Bearer {token}"} if token is not None else {}
            self._others[key] = Api(self.url, self._bare_tls, self._bare_tls, headers)
        return self._others[key]

    def another(self) -> "Api":
        """The same identity with connections of its own, for another thread; the caller closes it."""
        return Api(self.url, self._tls, self._bare_tls, self._headers)

    def close(self) -> None:
        """Closes every connection, those of `bearer` too."""
        for other in self._others.values():
            other.close()
        self.http.close()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        type: str = JSON,
        accept: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; *body* is sent as JSON, or as it is where it is bytes."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"accept": accept} | ({"content-type": type} if body is not None else {})
        response = self.http.request(method, path, content=content, headers=headers, params=dict(query or {}))
        return Answer(f"{method} {path}", response.status_code, response.headers, response.text)

    def get(self, path: str, *, accept: str = JSON, **query: str) -> Answer:
        """GET."""
        return self.call("GET", path, accept=accept, query=query)

    def exists(self, path: str) -> bool:
        """Whether a GET is answered with 200."""
        return self.get(path).code == 200

    def create(self, path: str, body: object, *, type: str = JSON, **query: str) -> Answer:
        """POST."""
        return self.call("POST", path, body, type=type, query=query)

    def replace(self, path: str, body: object, **query: str) -> Answer:
        """PUT."""
        return self.call("PUT", path, body, query=query)

    def patch(self, path: str, body: object, *, type: str = MERGE_PATCH, **query: str) -> Answer:
        """PATCH; a merge patch unless *type* says otherwise."""
        return self.call("PATCH", path, body, type=type, query=query)

    def apply(self, path: str, body: object, *, manager: str, force: bool = False) -> Answer:
        """Server-side apply."""
        query = {"fieldManager": manager} | ({"force": "true"} if force else {})
        return self.call("PATCH", path, body, type=APPLY_PATCH, query=query)

    def delete(self, path: str, options: Json | None = None, **query: str) -> Answer:
        """DELETE, with *options* as the fields of DeleteOptions."""
        body = None if options is None else {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        return self.call("DELETE", path, body, query=query)

    @contextmanager
    def watch(self, path: str, *, accept: str = JSON, **query: str) -> Iterator[Watch]:
        """An open watch; fails where the server does not answer with 200.

        It asks for no compression: a real server sends initial events as one gzip member after the other, of which
        httpx reads only the first.
        """
        params, headers = {"watch": "true", **query}, {"accept": accept, "accept-encoding": "identity"}
        with self.http.stream("GET", path, params=params, headers=headers) as response:
            if response.status_code != 200:
                response.read()
                raise AssertionError(f"WATCH {path} {query}: {response.status_code} {response.text[:1500]}")
            yield Watch(response)


def eventually(what: str, check: Callable[[], Any], seconds: float = ANSWER_SECONDS) -> Any:
    """The first true value of *check*; fails with *what* when none came in time."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)
