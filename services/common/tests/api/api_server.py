"""A plain client of a real API server, and the smallest objects that it takes."""

import base64
import copy
import json
import ssl
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

GROUP = "/apis/kruntimes.io/v1alpha1"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
LIMIT_SECONDS = 90.0
"""Until the server serves a new kind, or a controller has caught up: well under a second on a quiet machine."""

Json = dict[str, Any]


class Server:
    """The administrator's connection to an API server; every answer is returned, whatever its status."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in config["users"] if u["name"] == context["user"])

        def file(source: Json, key: str) -> Path | None:
            if f"{key}-data" in source:
                path = folder / key
                path.write_bytes(base64.b64decode(source[f"{key}-data"]))
                return path
            return Path(source[key]) if key in source else None

        tls = ssl.create_default_context(cafile=file(cluster, "certificate-authority"))
        certificate, key = file(user, "client-certificate"), file(user, "client-key")
        if certificate is not None:
            tls.load_cert_chain(certificate, key)
        headers = {"authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self.http = httpx.Client(base_url=cluster["server"], verify=tls, headers=headers, timeout=60, trust_env=False)

    def call(self, method: str, path: str, body: object = None, *, kind: str = JSON, **query: str) -> Json:
        """Sends a request and returns the JSON answer: the object, or the Status that says why not."""
        content = None if body is None else json.dumps(body).encode()
        answer = self.http.request(
            method, path, params=query, content=content, headers={"content-type": kind, "accept": "application/json"}
        )
        return answer.json()  # type: ignore[no-any-return]

    def done(self, method: str, path: str, body: object = None, *, kind: str = JSON, **query: str) -> Json:
        """As `call`, for what must succeed."""
        answer = self.call(method, path, body, kind=kind, **query)
        assert answer.get("status") != "Failure", answer["message"]
        return answer

    def table(self, path: str) -> tuple[list[str], dict[str, list[Any]]]:
        """What `kubectl get` would show: the column names, and each row by its first cell."""
        shown = self.http.get(path, headers={"accept": TABLE}).json()
        rows = {row["cells"][0]: row["cells"] for row in shown["rows"]}
        return [column["name"] for column in shown["columnDefinitions"]], rows

    def apply(self, path: str, obj: Json, *, manager: str = "tests", force: bool = True) -> Json:
        """Server-side apply."""
        return self.call("PATCH", path, obj, kind=APPLY, fieldManager=manager, force=str(force).lower())


def until(condition: Any, *, limit: float = LIMIT_SECONDS) -> Any:
    """Asks *condition* until it is true and returns what it said; fails after *limit* seconds."""
    end = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < end, "did not become true in time"
        time.sleep(0.05)
    return value


def merged(base: Json, patch: Json) -> Json:
    """RFC 7386: *patch* laid over *base*; None removes."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


FUNCTION: Json = {
    "apiVersion": "kruntimes.io/v1alpha1",
    "kind": "Run",
    "metadata": {"generateName": "fn-"},
    "spec": {
        "runtime": "python",
        "source": {"inline": "def main(x): return x", "inlinePath": "main.py"},
        "mode": {"function": {"handler": "main.main"}},
    },
}
TASK: Json = {
    "apiVersion": "kruntimes.io/v1alpha1",
    "kind": "Run",
    "metadata": {"generateName": "task-"},
    "spec": {"runtime": "bash", "source": {"inline": "true"}, "mode": {"task": {}}},
}
RUNTIME: Json = {
    "apiVersion": "kruntimes.io/v1alpha1",
    "kind": "Runtime",
    "metadata": {"generateName": "rt-"},
    "spec": {"template": {"spec": {"containers": [{"name": "runtime", "image": "example.org/python:1"}]}}},
}
