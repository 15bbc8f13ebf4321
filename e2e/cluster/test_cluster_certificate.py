"""A serving certificate of somebody else's: served, replaced without a restart, and published as told."""

import base64
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cluster.release import NAMESPACE, NODE_PORT, Cluster
from support import Api, Gateway, eventually

SECRET = "own-serving"
ECHO = "def handler(event):\n    return event\n"
KUBELET_SECONDS = 150.0
"""A kubelet looks at a Secret once a minute, and takes as long again where its cache is old."""


def _make(folder: Path, name: str, address: str) -> Path:
    """A certificate that signs itself; returns the folder of tls.crt and tls.key."""
    made = folder / name
    made.mkdir()
    names = ("IP:" if address[0].isdigit() else "DNS:") + address
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", made / "tls.key")
    said = ("-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}", "-out", made / "tls.crt")
    subprocess.run(["openssl", "req", "-x509", *key, *said], check=True, capture_output=True)
    return made


def _served(cluster: Cluster) -> str:
    """The certificate that the node port answers with."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((cluster.address, NODE_PORT), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="any") as tls,
    ):
        return ssl.DER_cert_to_PEM_cert(tls.getpeercert(True) or b"")


def _put(cluster: Cluster, folder: Path) -> None:
    make = ("create", "secret", "tls", SECRET, "-n", NAMESPACE, "--dry-run=client", "-o", "json")
    secret = cluster.kubectl(*make, f"--cert={folder / 'tls.crt'}", f"--key={folder / 'tls.key'}")
    cluster.kubectl("apply", "-f", "-", text=secret)


@pytest.mark.timeout(600)
def test_a_certificate_of_ones_own_is_served_replaced_and_published(
    stack: Any, release: Cluster, api: Api, gateway: Gateway, tmp_path: Path
) -> None:
    first, second = (_make(tmp_path, name, release.address) for name in ("first", "second"))
    both = (first / "tls.crt").read_text() + (second / "tls.crt").read_text()
    before = release.revision()
    _put(release, first)
    try:
        release.upgrade(**{"gateway.tls.secretName": SECRET, "gateway.tls.caBundle": both})
        release.gateways_settled()
        assert _served(release) == (first / "tls.crt").read_text()
        release.runtime_renewed("python")
        with api.function(ECHO) as run:
            endpoint = run["status"]["endpoint"]
            assert base64.b64decode(endpoint["caBundle"]).decode() == both
            (tmp_path / "ca.crt").write_text(both)
            trusting = Gateway(gateway.url, tmp_path / "ca.crt", gateway.token)
            with trusting.client() as client:
                assert client.post(endpoint["url"], headers=gateway.headers(), json=1).json() == 1
                _put(release, second)
                wanted = (second / "tls.crt").read_text()
                eventually("the new certificate is served", lambda: _served(release) == wanted, KUBELET_SECONDS)
                # The connection that stood before is still good.
                assert client.post(endpoint["url"], headers=gateway.headers(), json=2).json() == 2
    finally:
        release.rollback(before)
        release.gateways_settled()
        release.kubectl("delete", "secret", SECRET, "-n", NAMESPACE)
        release.runtime_ready("python", 2)
        release.runtime_ready("bash", 1)
