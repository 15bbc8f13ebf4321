"""Reads a kubeconfig: which API server, whom to trust, and as whom to act.

Small on purpose: the client library that the services use costs 0.4 s to import, which a command cannot afford.
Supported: certificates in files or inline, client certificates, `token`, `tokenFile`, `exec`, contexts, several files
in $KUBECONFIG. A user with `auth-provider` is refused; kubectl has no such thing any more either.
"""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kruntimes.sdk.errors import ConfigError

EXEC_SECONDS = 60.0
"""A plugin may open a browser and wait for a person."""
CALLS = "kruntimes.io/calls"
"""The extension of a context that says how functions are called: `tokenFile`, relative to the kubeconfig."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An API server and a credential. Certificates are PEM; token_file is read anew whenever a token is needed.

    ca_pem: None trusts what the system trusts. tls_server_name: the name in the server's certificate, where it is
    not the one in *server*. call_token_file: for calling functions, where the API takes a certificate.
    """

    server: str
    namespace: str = "default"
    ca_pem: str | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    static_token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    plugin: Mapping[str, Any] | None = field(default=None, repr=False)
    call_token_file: Path | None = None

    def call_token(self) -> str | None:
        """The bearer token to call functions with: the context's own, else the one that the API gets."""
        return self.token() if self.call_token_file is None else _token_in(self.call_token_file)

    def token(self) -> str | None:
        """The bearer token to act with now, or None where a client certificate speaks. Raises ConfigError."""
        if self.token_file is not None:
            return _token_in(self.token_file)
        if self.plugin is not None:
            return _ask_plugin(self.plugin)
        return self.static_token


def load(path: Path | None = None, *, context: str | None = None, environ: Mapping[str, str] = os.environ) -> Access:
    """Reads *path*, else $KUBECONFIG, else ~/.kube/config, else the ServiceAccount of the Pod that this runs in.

    Raises ConfigError with a sentence.
    """
    given = str(path) if path is not None else environ.get("KUBECONFIG", "")
    files = [Path(part).expanduser() for part in given.split(os.pathsep) if part]
    if not files:
        default = Path("~/.kube/config").expanduser()
        if not default.is_file():
            return _in_cluster(environ)
        files = [default]
    found = [file for file in files if file.is_file()]
    if not found:
        raise ConfigError(f"kubeconfig {given}: no such file")
    return _select([(file, _parse(file)) for file in found], context)


def _token_in(file: Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"token file {file}: {error}") from None


def _parse(file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"kubeconfig {file}: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {file}: not a kubeconfig")
    return document


def _select(files: list[tuple[Path, dict[str, Any]]], context: str | None) -> Access:
    """Merges as kubectl does: the first file that names a thing wins."""
    name = context or next((str(d["current-context"]) for _, d in files if d.get("current-context")), "")
    if not name:
        raise ConfigError(f"kubeconfig {files[0][0]}: no current-context; choose one with --context")
    context_file, chosen = _named(files, "contexts", "context", name)
    cluster_file, cluster = _named(files, "clusters", "cluster", str(chosen.get("cluster", "")))
    user_file: Path = files[0][0]
    user: dict[str, Any] = {}
    if chosen.get("user"):
        user_file, user = _named(files, "users", "user", str(chosen["user"]))
    if "auth-provider" in user:
        raise ConfigError(f"kubeconfig {user_file}: auth-provider is not supported; use an exec plugin")
    if not cluster.get("server"):
        raise ConfigError(f"kubeconfig {cluster_file}: the cluster names no server")
    token_file = user.get("tokenFile")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=str(chosen.get("namespace") or "default"),
        ca_pem=_pem(cluster_file, cluster, "certificate-authority"),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        tls_server_name=cluster.get("tls-server-name"),
        certificate_pem=_pem(user_file, user, "client-certificate"),
        key_pem=_pem(user_file, user, "client-key"),
        static_token=user.get("token"),
        token_file=user_file.parent / token_file if token_file else None,
        plugin=user.get("exec"),
        call_token_file=_call_token_file(context_file, chosen),
    )


def _call_token_file(file: Path, context: Mapping[str, Any]) -> Path | None:
    """What an extension of the context names; kubectl passes extensions over."""
    for one in context.get("extensions") or []:
        if one.get("name") == CALLS and (one.get("extension") or {}).get("tokenFile"):
            return file.parent / str(one["extension"]["tokenFile"])
    return None


def _named(files: list[tuple[Path, dict[str, Any]]], plural: str, kind: str, name: str) -> tuple[Path, dict[str, Any]]:
    for file, document in files:
        for entry in document.get(plural) or []:
            if entry.get("name") == name:
                return file, entry.get(kind) or {}
    raise ConfigError(f"kubeconfig {files[0][0]}: there is no {kind} {name!r}")


def _pem(file: Path, source: Mapping[str, Any], key: str) -> str | None:
    """A certificate or key that stands inline in base64, or in a file named relative to the kubeconfig."""
    try:
        if source.get(f"{key}-data"):
            return base64.b64decode(source[f"{key}-data"]).decode("ascii")
        if source.get(key):
            return (file.parent / str(source[key])).read_text("ascii")
    except (OSError, ValueError) as error:
        raise ConfigError(f"kubeconfig {file}: {key}: {error}") from None
    return None


def _in_cluster(environ: Mapping[str, str]) -> Access:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (SERVICE_ACCOUNT / "token").is_file():
        raise ConfigError("no kubeconfig: set KUBECONFIG, or use --kubeconfig")
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=(SERVICE_ACCOUNT / "namespace").read_text("ascii").strip(),
        ca_pem=(SERVICE_ACCOUNT / "ca.crt").read_text("ascii"),
        token_file=SERVICE_ACCOUNT / "token",
    )


def _ask_plugin(plugin: Mapping[str, Any]) -> str:
    """Runs a client-go credential plugin and returns its token."""
    version = plugin.get("apiVersion", "client.authentication.k8s.io/v1")
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    extra = {str(e["name"]): str(e["value"]) for e in plugin.get("env") or []}
    command = [str(plugin.get("command", "")), *map(str, plugin.get("args") or [])]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=EXEC_SECONDS, check=True,
        )  # fmt: skip
        token = json.loads(done.stdout)["status"]["token"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"credential plugin {command[0]!r} gave no token: {type(error).__name__}") from None
    return str(token)
