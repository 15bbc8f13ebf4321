"""A loopback HTTPS server that plays an API server and a gateway, with fault switches, for tests of the SDK and krt."""

import base64
import datetime
import http.server
import ipaddress
import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

RUNS = "/apis/kruntimes.io/v1alpha1/namespaces/default/runs"


@dataclass
class Reply:
    """One answer of the gateway. fault: `reset` after the request was read, or `close` before a byte of it."""

    status: int = 200
    body: bytes = b'{"hello": "you"}'
    headers: dict[str, str] = field(default_factory=lambda: {"x-kruntime-outcome": "completed"})
    fault: str = ""


def failure(status: int, outcome: str, reason: str, **details: Any) -> Reply:
    """The error document of design §6."""
    error = {
        "reason": reason, "message": f"it was {reason}", "component": "runtimed", "invocationId": "i-1",
        "outcome": outcome, "retrySafe": outcome in ("rejected", "not_dispatched"), "details": details,
    }  # fmt: skip
    headers = {"x-kruntime-outcome": outcome, "x-kruntime-invocation-id": "i-1"}
    return Reply(status, json.dumps({"error": error}).encode(), headers)


class Server:
    """What the server holds and what it has seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: dict[str, dict[str, Any]] = {}
        self.made_phase = "Ready"
        self.reply = Reply()
        self.logs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.calls: list[tuple[str, str, dict[str, str], bytes]] = []
        self.url = ""
        self.ca_pem = ""

    def add_run(self, name: str, *, phase: str = "Ready", ready: bool = True, endpoint: bool = True) -> None:
        """Puts a Run there, as the control plane shows it."""
        uid = f"00000000-0000-4000-8000-{len(self.runs):012d}"
        status: dict[str, Any] = {
            "phase": phase,
            "attempt": 1,
            "assignedPod": "python-0",
            "conditions": [{"type": "Ready", "status": str(ready), "reason": "FunctionRegistered"}],
        }
        if endpoint:
            url = f"{self.url}/v1/namespaces/default/runtimes/python/functions/{uid}:invoke"
            bundle = base64.b64encode(self.ca_pem.encode()).decode()
            status["endpoint"] = {"protocol": "HTTPS", "url": url, "caBundle": bundle}
        meta = {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
        spec = {"runtime": "python", "mode": {"function": {"handler": "m.f"}}}
        self.runs[name] = {"metadata": meta, "spec": spec, "status": status}

    def log(self, container: str, message: str, **fields: Any) -> None:
        """Adds a line to the log of a container of the one Pod; its time is its number."""
        lines = self.logs.setdefault(("python-0", container), [])
        at = sum(len(some) for some in self.logs.values())
        time = f"2026-01-01T00:00:{at:02d}.000+00:00"
        lines.append({"time": time, "level": "info", "component": container, "message": message, **fields})

    def kubeconfig(self, **user: Any) -> Path:
        """A kubeconfig for it; *user* is the credential, a token by default."""
        path = self.folder / "kubeconfig"
        cluster = {"server": self.url, "certificate-authority-data": base64.b64encode(self.ca_pem.encode()).decode()}
        document = {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "default"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user or {"token": "t-1"}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def log_message(self, *_: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_DELETE = do_GET

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        seen = {key.lower(): value for key, value in self.headers.items()}
        self.state.calls.append((self.command, self.path, seen, body))
        if self.path.startswith("/v1/"):
            self._gateway()
        else:
            self._api(body)

    def _gateway(self) -> None:
        reply = self.state.reply
        if reply.fault:
            # SO_LINGER 0 turns the close into a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        self._answer(reply.status, reply.body, reply.headers)

    def _api(self, body: bytes) -> None:
        path, runs = self.path.partition("?")[0], self.state.runs
        if path == RUNS and self.command == "POST":
            made = json.loads(body)
            name = made["metadata"].get("name") or made["metadata"]["generateName"] + "x"
            self.state.add_run(name, phase=self.state.made_phase)
            self.state.runs[name]["spec"] = made["spec"]
            self._answer(201, json.dumps(self.state.runs[name]).encode())
        elif path == RUNS:
            self._answer(200, json.dumps({"items": list(runs.values())}).encode())
        elif path == "/api/v1/namespaces/default/pods":
            self._answer(
                200, json.dumps({"items": [{"metadata": {"name": pod}} for pod, _ in self.state.logs]}).encode()
            )
        elif path.startswith("/api/v1/namespaces/default/pods/") and path.endswith("/log"):
            container = parse_qs(self.path.partition("?")[2])["container"][0]
            lines = self.state.logs.get((path.split("/")[-2], container), [])
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            self._answer(200, f"not a line of ours\n{text}".encode())
        elif path.startswith(f"{RUNS}/") and (name := path.rsplit("/", 1)[1]) in runs:
            if self.command == "PUT":
                runs[name] = json.loads(body)
            found = runs.pop(name) if self.command == "DELETE" else runs[name]
            self._answer(200, json.dumps(found).encode())
        else:
            said = {"kind": "Status", "reason": "NotFound", "message": f"{path.rsplit('/', 1)[1]} not found"}
            self._answer(404, json.dumps(said).encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _certificate(folder: Path) -> tuple[Path, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "loopback.pem"
    file.write_bytes(secret + pem)
    return file, pem.decode()


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server on a free port of the loopback interface, until the block ends."""
    state = Server(folder)
    file, state.ca_pem = _certificate(folder)
    handler = type("Handler", (_Handler,), {"state": state})
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    httpd.daemon_threads = True
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    httpd.socket = tls.wrap_socket(httpd.socket, server_side=True)
    state.url = f"https://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()
