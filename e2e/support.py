"""What the end-to-end tests use to act as a platform team and as its users: Kubernetes' API and the gateway.

Nothing here imports the product: these are the calls that a stranger makes.
"""

import base64
import json
import ssl
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

READY_SECONDS = 30.0
"""A warm Pod makes a function Ready in well under a second; a busy machine gets this long."""
RUNS = "/apis/kruntimes.io/v1alpha1/namespaces/{}/runs"


def eventually(what: str, check: Callable[[], Any], seconds: float = READY_SECONDS) -> Any:
    """Returns the first true value of *check*; fails with *what* when none came in time."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


class Api:
    """The Kubernetes API with an administrator's kubeconfig (client certificate or token)."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
        tls = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"),
            cadata=base64.b64decode(cluster.get("certificate-authority-data", "")).decode() or None,
        )
        headers = {}
        if "client-certificate" in user:
            tls.load_cert_chain(user["client-certificate"], user["client-key"])
        elif "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile() as both:  # ssl reads certificates from files alone
                both.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
                both.write(base64.b64decode(user["client-key-data"]))
                both.flush()
                tls.load_cert_chain(both.name)
        elif "token" in user:
            headers["authorization"] = f"Bearer {user['token']}"
        self.server: str = cluster["server"]
        self.http = httpx.Client(base_url=self.server, verify=tls, headers=headers, timeout=30, trust_env=False)

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """One request; fails with the server's own message."""
        content = None if body is None else json.dumps(body).encode()
        answer = self.http.request(method, path, content=content, headers={"content-type": content_type})
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def get(self, path: str) -> Any | None:
        """The object at *path*, or None."""
        answer = self.http.get(path)
        if answer.status_code == 404:
            return None
        assert answer.is_success, f"GET {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    # ------------------------------------------------------------ Runs

    def declare(
        self, name: str, source: str, *, handler: str, runtime: str = "python", namespace: str = "default", **spec: Any
    ) -> dict[str, Any]:
        """Creates a function Run with an inline source; `function` in *spec* adds to its mode."""
        suffix = "sh" if runtime == "bash" else "py"
        function = {"handler": handler, **spec.pop("function", {})}
        run = {
            "apiVersion": "kruntimes.io/v1alpha1",
            "kind": "Run",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "runtime": runtime,
                "source": {"inline": source, "inlinePath": f"{handler.split('.')[0]}.{suffix}"},
                "mode": {"function": function},
                **spec,
            },
        }
        made: dict[str, Any] = self.call("POST", RUNS.format(namespace), run)
        return made

    def run(self, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """The Run, or None."""
        found: dict[str, Any] | None = self.get(f"{RUNS.format(namespace)}/{name}")
        return found

    def ready(self, name: str, namespace: str = "default", seconds: float = READY_SECONDS) -> dict[str, Any]:
        """Waits until the Run's condition Ready is True; returns the Run."""

        def check() -> dict[str, Any] | None:
            run = self.run(name, namespace)
            assert run is not None, f"Run {name} is gone"
            status = run.get("status", {})
            assert status.get("phase") not in ("Failed", "Timeout", "Cancelled", "Succeeded"), f"{name} ended: {status}"
            conditions = {c["type"]: c for c in status.get("conditions", [])}
            return run if conditions.get("Ready", {}).get("status") == "True" else None

        found: dict[str, Any] = eventually(f"Run {name} Ready", check, seconds)
        return found

    def delete(self, name: str, namespace: str = "default") -> None:
        """Deletes the Run and waits until its finalizer let it go."""
        answer = self.http.delete(f"{RUNS.format(namespace)}/{name}")
        assert answer.status_code in (200, 404), answer.text[:500]
        eventually(f"Run {name} deleted", lambda: self.run(name, namespace) is None)

    @contextmanager
    def function(
        self,
        source: str,
        *,
        handler: str = "case.handler",
        runtime: str = "python",
        namespace: str = "default",
        **spec: Any,
    ) -> Iterator[dict[str, Any]]:
        """A function that is Ready, and deleted at the end."""
        name = f"t-{uuid.uuid4().hex[:10]}"
        self.declare(name, source, handler=handler, runtime=runtime, namespace=namespace, **spec)
        try:
            yield self.ready(name, namespace)
        finally:
            self.delete(name, namespace)

    # ------------------------------------------------------------ users

    def user(
        self, name: str, rules: list[dict[str, Any]], namespace: str = "default", seconds: int = 600, audience: str = ""
    ) -> str:
        """Makes a ServiceAccount that may do what *rules* say in *namespace*; returns a token of it."""
        core, rbac = f"/api/v1/namespaces/{namespace}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        if self.get(f"{core}/serviceaccounts/{name}") is None:
            self.call("POST", f"{core}/serviceaccounts", {"metadata": {"name": name}})
            if rules:
                self.call("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
                self.call(
                    "POST",
                    f"{rbac}/rolebindings",
                    {
                        "metadata": {"name": name},
                        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
                    },
                )
        spec = {"expirationSeconds": seconds, **({"audiences": [audience]} if audience else {})}
        made = self.call("POST", f"{core}/serviceaccounts/{name}/token", {"spec": spec})
        token: str = made["status"]["token"]
        return token


@dataclass(frozen=True)
class Gateway:
    """The public listener, spoken to with one token."""

    url: str
    ca: Path
    token: str

    def client(self, *, http2: bool = False, timeout: float = 90.0) -> httpx.Client:
        """A client that trusts only the gateway's own CA."""
        tls = ssl.create_default_context(cafile=self.ca)
        return httpx.Client(base_url=self.url, verify=tls, http2=http2, timeout=timeout, trust_env=False)

    def headers(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The bearer token and the JSON content type, with *extra* over them."""
        return {"authorization": f"Bearer {self.token}", "content-type": "application/json", **(extra or {})}


def path_of(run: Mapping[str, Any]) -> str:
    """The canonical invoke path, made from the Run's own fields rather than from its endpoint."""
    meta = run["metadata"]
    return f"/v1/namespaces/{meta['namespace']}/runtimes/{run['spec']['runtime']}/functions/{meta['uid']}:invoke"


def check_error(
    answer: httpx.Response,
    status: int,
    outcome: str,
    *,
    reason: str | None = None,
    component: str | None = None,
    retry_after: bool = False,
) -> dict[str, Any]:
    """Asserts everything that design §6 promises of an error: status, headers and the one JSON document."""
    assert answer.status_code == status, f"{answer.status_code} instead of {status}: {answer.text[:500]}"
    assert answer.headers["content-type"].startswith("application/json"), answer.headers
    error = answer.json()["error"]
    assert set(error) == {"reason", "message", "component", "invocationId", "outcome", "retrySafe", "details"}
    safe = outcome in ("rejected", "not_dispatched")
    assert (error["outcome"], error["retrySafe"]) == (outcome, safe), error
    assert answer.headers["x-kruntime-outcome"] == outcome
    assert answer.headers["x-kruntime-retry-safe"] == str(safe).lower()
    if error["invocationId"] is not None:
        assert answer.headers["x-kruntime-invocation-id"] == error["invocationId"]
    assert error["message"] and isinstance(error["message"], str)
    if reason is not None:
        assert error["reason"] == reason, error
    if component is not None:
        assert error["component"] == component, error
    if retry_after:
        assert int(answer.headers["retry-after"]) >= 1
    return error
