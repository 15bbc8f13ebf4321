"""Certificate requests: what is asked for, what comes back, and who asked, on the real API server."""

import asyncio
import base64
import datetime
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.kube.kube_faults import LIMIT_SECONDS

from kruntimes.common.api.names import POD_NAME_EXTRA, POD_UID_EXTRA, SERVING_SIGNER
from kruntimes.common.api.views import CSR, Object
from kruntimes.common.errors import NotReady
from kruntimes.common.kube import errors, paths
from kruntimes.common.kube.csr import (
    Certificate,
    CertificateNames,
    CertificateRefused,
    assemble,
    build_request,
    new_key,
    request_certificate,
    usages,
)
from kruntimes.common.kube.transport import Kube

SIGNER = "kruntimes.io/runtimed"
NAMES = CertificateNames(
    uris=("spiffe://cluster.local/ns/demo/runtimed/python/pod/uid-1",),
    dns=("uid-1.runtimed.kruntimes.internal", "python.demo.runtime.kruntimes.internal"),
    ips=("127.77.0.5", "fd00::1"),
)


class Authority:
    """A CA that signs whatever it is given."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test ca")])

    def sign(self, request_pem: bytes, *, key: ec.EllipticCurvePublicKey | None = None) -> bytes:
        request = x509.load_pem_x509_csr(request_pem)
        now = datetime.datetime.now(datetime.UTC)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self.name)
            .public_key(key or request.public_key())  # type: ignore[arg-type]
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(names.value, critical=names.critical)
            .sign(self.key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )


def test_the_request_holds_exactly_the_names_and_proves_the_key() -> None:
    key = new_key()
    request = x509.load_pem_x509_csr(build_request(key, NAMES))
    assert request.is_signature_valid
    assert request.public_key() == key.public_key()
    assert isinstance(key.curve, ec.SECP256R1)
    found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert tuple(found.get_values_for_type(x509.UniformResourceIdentifier)) == NAMES.uris
    assert tuple(found.get_values_for_type(x509.DNSName)) == NAMES.dns
    assert found.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(ip) for ip in NAMES.ips]


@pytest.mark.parametrize(
    ("dns", "common"),
    [
        pytest.param(("a" * 36 + ".runtimed.kruntimes.internal",), True, id="64-characters-fit"),
        pytest.param(("a" * 63 + ".b",), False, id="65-do-not"),
        pytest.param((), False, id="no-name"),
    ],
)
def test_the_common_name_is_a_name_that_fits(dns: tuple[str, ...], common: bool) -> None:
    names = CertificateNames(uris=("spiffe://a/b",), dns=dns)
    request = x509.load_pem_x509_csr(build_request(new_key(), names))
    assert bool(list(request.subject)) is common
    assert request.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical is not common


def test_a_serving_certificate_cannot_call() -> None:
    assert "client auth" not in usages(SERVING_SIGNER)
    assert {"client auth", "server auth"} <= set(usages(SIGNER))


def test_a_certificate_for_another_key_or_none_at_all_is_refused() -> None:
    key, other = new_key(), new_key()
    chain = Authority().sign(build_request(key, NAMES), key=other.public_key())
    for wrong in (chain, b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(CertificateRefused):
            assemble(key, wrong)


def test_a_key_does_not_get_into_a_log() -> None:
    certificate = assemble(key := new_key(), Authority().sign(build_request(key, NAMES)))
    assert b"PRIVATE KEY" in certificate.key_pem
    assert "PRIVATE" not in repr(certificate)
    assert "PRIVATE" not in f"{certificate}"


async def _pending(admin: Kube, username: str) -> CSR:
    """The request that *username* has made and nobody has answered."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            found, _ = await admin.list(paths.csrs(), CSR, field_selector=f"spec.signerName={SIGNER}")
            for request in found:
                if request.spec.username == username and not request.status.conditions:
                    return request
            await asyncio.sleep(0.02)


async def _condition(admin: Kube, request: CSR, kind: str, reason: str) -> None:
    path = paths.csrs(request.metadata.name)
    whole: dict[str, Any] = await admin.get(path, dict)
    condition = {"type": kind, "status": "True", "reason": reason, "message": "said the test"}
    whole["status"] = {"conditions": [condition]}
    sub = "status" if kind == "Failed" else "approval"
    await admin.replace(f"{path}/{sub}", whole, Object)


async def _issue(admin: Kube, request: CSR, chain: bytes) -> None:
    path = paths.csrs(request.metadata.name, "status")
    whole: dict[str, Any] = await admin.get(paths.csrs(request.metadata.name), dict)
    whole["status"]["certificate"] = base64.b64encode(chain).decode()
    await admin.replace(path, whole, Object)


class Pod:
    """A Pod's identity on the real server: its name, UID, and a client with a token that is bound to it."""

    def __init__(self, kube: Kube, uid: str, username: str) -> None:
        self.kube = kube
        self.uid = uid
        self.username = username


@pytest.fixture
async def pod(real: Kube, namespace: str, control_plane: Path, tmp_path: Path) -> AsyncIterator[Pod]:
    container = {"name": "c", "image": "none"}
    made = await real.create(
        paths.pods(namespace),
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}},
        Object,
    )
    rule = {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": namespace},
        "rules": [rule | {"verbs": ["create", "get"]}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await real.create(f"{rbac}/clusterroles", role, Object)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    await real.create(f"{rbac}/clusterrolebindings", binding, Object)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made.metadata.uid}
    wish = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound, "expirationSeconds": 600},
    }
    answer = await real.create(paths.serviceaccounts(namespace, "default", "token"), wish, dict)
    token = tmp_path / "token"
    token.write_text(answer["status"]["token"])
    config = yaml.safe_load(control_plane.read_text())
    config["users"] = [{"name": user["name"], "user": {"tokenFile": str(token)}} for user in config["users"]]
    kubeconfig = tmp_path / "pod-kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    kube = await Kube.connect(kubeconfig=kubeconfig)
    try:
        yield Pod(kube, made.metadata.uid, f"system:serviceaccount:{namespace}:default")
    finally:
        await kube.close()
        await real.delete(f"{rbac}/clusterrolebindings/{namespace}")
        await real.delete(f"{rbac}/clusterroles/{namespace}")


async def test_the_server_writes_the_pod_into_the_request_and_the_certificate_comes_back(real: Kube, pod: Pod) -> None:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(request_certificate(pod.kube, signer=SIGNER, names=NAMES, seconds=600))
        request = await _pending(real, pod.username)
        assert request.spec.extra[POD_NAME_EXTRA] == ("p",)
        assert request.spec.extra[POD_UID_EXTRA] == (pod.uid,)
        assert request.spec.expiration_seconds == 600
        await _condition(real, request, "Approved", "Test")
        await _issue(real, request, Authority().sign(base64.b64decode(request.spec.request)))
    certificate: Certificate = asked.result()
    assert certificate.not_after - certificate.not_before == 3600
    leaf = x509.load_pem_x509_certificate(certificate.chain_pem)
    key = serialization.load_pem_private_key(certificate.key_pem, None)
    assert leaf.public_key() == key.public_key()


@pytest.mark.parametrize("kind", ["Denied", "Failed"])
async def test_a_refusal_is_told_in_its_own_words(real: Kube, pod: Pod, kind: str) -> None:
    async def refuse() -> None:
        request = await _pending(real, pod.username)
        if kind == "Failed":
            await _condition(real, request, "Approved", "Test")
            whole: dict[str, Any] = await real.get(paths.csrs(request.metadata.name), dict)
            failed = {"type": "Failed", "status": "True", "reason": "WrongPod", "message": "said the test"}
            whole["status"]["conditions"].append(failed)
            await real.replace(paths.csrs(request.metadata.name, "status"), whole, Object)
        else:
            await _condition(real, request, kind, "WrongPod")

    async with asyncio.TaskGroup() as group:
        group.create_task(refuse())
        with pytest.raises(CertificateRefused, match=f"{kind} WrongPod: said the test"):
            await request_certificate(pod.kube, signer=SIGNER, names=NAMES, seconds=600)


async def test_a_signer_that_is_away_is_waited_for_only_so_long(pod: Pod) -> None:
    with pytest.raises(NotReady, match="has not answered"):
        await request_certificate(pod.kube, signer=SIGNER, names=NAMES, seconds=600, timeout=0.5)


async def test_who_may_not_ask_is_told_so(real: Kube, pod: Pod) -> None:
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    with pytest.raises(errors.Forbidden):
        await pod.kube.create(paths.serviceaccounts("kube-system", "default", "token"), wish, dict)


async def test_in_a_pod_the_service_account_speaks_and_its_token_may_rotate(
    real: Kube, namespace: str, control_plane: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    good = await real.create(paths.serviceaccounts(namespace, "default", "token"), wish, dict)
    cluster = yaml.safe_load(control_plane.read_text())["clusters"][0]["cluster"]
    ca = (
        base64.b64decode(cluster["certificate-authority-data"])
        if "certificate-authority-data" in cluster
        else Path(cluster["certificate-authority"]).read_bytes()
    )
    (tmp_path / "ca.crt").write_bytes(ca)
    (tmp_path / "token").write_text("a-token-that-has-expired")
    server = urlsplit(cluster["server"])
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port or 443))
    monkeypatch.setattr("kruntimes.common.kube.config.SERVICE_ACCOUNT", tmp_path)
    kube = await Kube.connect()
    try:
        question = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        with pytest.raises(errors.Unauthorized):
            await kube.create(paths.self_subject_reviews(), question, dict)
        (tmp_path / "token").write_text(good["status"]["token"] + "\n")
        answer = await kube.create(paths.self_subject_reviews(), question, dict)
        assert answer["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"
    finally:
        await kube.close()
