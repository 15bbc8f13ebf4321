"""What authz writes for the Envoy beside it: certificates, the files that name them, and the bootstrap (design §8).

    FOLDER/authz.sock, admin.sock                  the two sockets
    FOLDER/envoy.yaml                              the bootstrap
    FOLDER/{client,serving,ca}.yaml                SDS resources, which never change: they name the files below
    FOLDER/tls/{client,serving}.{crt,key}, ca.crt  links into tls/..data, a link to one generation of files

A new generation becomes visible by one rename of `..data`, as the kubelet does it: Envoy watches the folder for that
and reads key and certificate of one generation.
"""

import ipaddress
import json
import os
import re
import shutil
import ssl
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from kruntimes.common.api.names import ENVOY_STATS_PORT, GATEWAY_PORT
from kruntimes.common.kube.csr import Certificate

ADMIN_SOCKET = "admin.sock"
AUTHZ_SOCKET = "authz.sock"
BOOTSTRAP = "envoy.yaml"
MAX_SOCKET_PATH = 107
"""sun_path holds 108 bytes with its end."""
IDLE_MARGIN_SECONDS = 10.0
"""Envoy's idle time-out of a stream lies this far above the longest deadline: a running invocation is silent."""
KEPT_GENERATIONS = 2
"""The current one, and the one before: Envoy may be reading it."""

_PATH = re.compile(r"/[A-Za-z0-9._@+/-]*")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_DATA = "..data"
_SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 - a type's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What differs between two Envoys. max_timeout: the longest deadline of an invocation, in seconds."""

    bind_address: str
    ads_host: str
    ads_port: int
    max_timeout: float
    gateway_port: int = GATEWAY_PORT
    stats_port: int = ENVOY_STATS_PORT


def host_and_port(address: str, *, default_port: int) -> tuple[str, int]:
    """Splits `HOST[:PORT]` or `[IPV6][:PORT]`; raises ValueError for anything else."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?", address)
    if match is None:
        raise ValueError("not HOST[:PORT]")
    return match[1] or match[2], int(match[3]) if match[3] else default_port


def render(template: str, folder: Path, bootstrap: Bootstrap) -> str:
    """The bootstrap as Envoy reads it. Raises ValueError that names the value that is wrong.

    Each placeholder becomes one JSON scalar, of a value that has been checked to be what its place is for: none can
    bring YAML of its own.
    """
    check(folder, bootstrap)
    values: dict[str, str | int] = {
        "bind_address": bootstrap.bind_address,
        "gateway_port": bootstrap.gateway_port,
        "stats_port": bootstrap.stats_port,
        "ads_host": bootstrap.ads_host,
        "ads_port": bootstrap.ads_port,
        "idle_seconds": f"{bootstrap.max_timeout + IDLE_MARGIN_SECONDS:.3f}s",
        "admin_socket": str(folder / ADMIN_SOCKET),
        "authz_socket": str(folder / AUTHZ_SOCKET),
        "client_sds": str(folder / "client.yaml"),
        "serving_sds": str(folder / "serving.yaml"),
        "ca_sds": str(folder / "ca.yaml"),
    }
    return Template(template).substitute({name: json.dumps(value) for name, value in values.items()})


def check(folder: Path, bootstrap: Bootstrap) -> None:
    """Raises ValueError for a value that cannot be what it is for."""
    if not _PATH.fullmatch(str(folder)) or len(str(folder / AUTHZ_SOCKET)) > MAX_SOCKET_PATH:
        raise ValueError("the gateway's folder must be an absolute path of plain characters, short enough for a socket")
    ipaddress.ip_address(bootstrap.bind_address)
    if not (_HOST.fullmatch(bootstrap.ads_host) or _is_ip(bootstrap.ads_host)):
        raise ValueError("the router's host is neither a name nor an address")
    for port in (bootstrap.gateway_port, bootstrap.stats_port, bootstrap.ads_port):
        if not 0 < port < 65536:
            raise ValueError(f"{port} is not a port")


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def secrets(folder: Path, serving_dir: Path | None = None) -> dict[str, str]:
    """The SDS files by name; JSON, which is YAML too.

    serving_dir: where somebody else keeps the serving certificate, as the volume of a Secret of type
    kubernetes.io/tls does; Envoy follows it there.
    """
    tls = folder / "tls"

    def pair(name: str, place: Path, file: str) -> dict[str, object]:
        certificate = {
            "certificate_chain": {"filename": str(place / f"{file}.crt")},
            "private_key": {"filename": str(place / f"{file}.key")},
            "watched_directory": {"path": str(place)},
        }
        return {"name": name, "tls_certificate": certificate}

    trusted = {"trusted_ca": {"filename": str(tls / "ca.crt")}, "watched_directory": {"path": str(tls)}}
    contents: dict[str, dict[str, object]] = {
        "client.yaml": pair("client", tls, "client"),
        "serving.yaml": pair("serving", serving_dir, "tls") if serving_dir else pair("serving", tls, "serving"),
        "ca.yaml": {"name": "ca", "validation_context": trusted},
    }
    return {name: json.dumps({"resources": [{"@type": _SECRET, **secret}]}) for name, secret in contents.items()}


def check_serving(folder: Path) -> None:
    """Raises ValueError that says what is wrong with the certificate that somebody else keeps in *folder*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key", password="")
    except FileNotFoundError:
        raise ValueError("it needs both tls.crt and tls.key") from None
    except PermissionError:
        raise ValueError("tls.crt or tls.key cannot be read") from None
    except ssl.SSLError as error:
        raise ValueError(f"tls.crt and tls.key are no certificate and its key: {error.reason or 'not PEM'}") from None


class GatewayFiles:
    """The folder that authz and Envoy share; both run as the same user, and nobody else may read it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tls = folder / "tls"

    def write_certificates(self, *, client: Certificate, serving: Certificate | None, ca_pem: bytes) -> None:
        """Makes these the current generation at one stroke. serving: None where somebody else keeps it."""
        self._tls.mkdir(mode=0o700, parents=True, exist_ok=True)
        contents = {
            "client.crt": client.chain_pem,
            "client.key": client.key_pem,
            "ca.crt": ca_pem,
        }
        if serving is not None:
            contents |= {"serving.crt": serving.chain_pem, "serving.key": serving.key_pem}
        made = self._new_generation()
        for name, content in contents.items():
            _create(made / name, content)
        _link(self._tls / _DATA, made.name)
        for name in contents:
            if not (self._tls / name).is_symlink():
                _link(self._tls / name, f"{_DATA}/{name}")
        for old in self._generations()[:-KEPT_GENERATIONS]:
            shutil.rmtree(old, ignore_errors=True)

    def write_bootstrap(self, bootstrap: Bootstrap, *, serving_dir: Path | None = None) -> None:
        """Writes the SDS files and then Envoy's bootstrap, which is the last thing an Envoy waits for.

        serving_dir: as for `secrets`. Raises ValueError as `render` does.
        """
        template = resources.files("kruntimes.envoy").joinpath("bootstrap.yaml").read_text()
        rendered = render(template, self._folder, bootstrap)
        for name, content in secrets(self._folder, serving_dir).items():
            _replace(self._folder / name, content.encode())
        _replace(self._folder / BOOTSTRAP, rendered.encode())

    def _generations(self) -> list[Path]:
        """The folders of all generations, oldest first."""
        return sorted((path for path in self._tls.glob("..[0-9]*") if path.is_dir()), key=lambda path: path.name)

    def _new_generation(self) -> Path:
        """A folder of its own, whose name sorts after every other; what a crash left half written stays unused."""
        before = self._generations()
        made = self._tls / f"..{int(before[-1].name[2:]) + 1 if before else 0:012}"
        made.mkdir(mode=0o700)
        return made


def _create(path: Path, content: bytes) -> None:
    """Writes a file that nobody else may read and that was not there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)


def _replace(path: Path, content: bytes) -> None:
    """Puts a file in place whole; a reader sees the old one or the new one."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    _create(beside, content)
    beside.rename(path)


def _link(path: Path, target: str) -> None:
    """Points a symbolic link elsewhere by one rename."""
    beside = path.with_name(f"..new-{path.name}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.rename(path)
