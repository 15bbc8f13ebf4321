"""What authz writes for Envoy: nothing but scalars reaches the bootstrap, and certificates change at one stroke."""

import json
import stat
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kruntimes.authz.files import Bootstrap, GatewayFiles, check_serving, host_and_port, render, secrets
from kruntimes.common.kube.csr import Certificate

TEMPLATE = resources.files("kruntimes.envoy").joinpath("bootstrap.yaml").read_text()
FOLDER = Path("/run/kruntimes-gateway")


def pair() -> tuple[bytes, bytes]:
    """A certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "functions.example.com")])
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(*plain)


PAIR, OTHER = pair(), pair()


def bootstrap(**changes: object) -> Bootstrap:
    values: dict[str, object] = {
        "bind_address": "0.0.0.0",
        "ads_host": "kruntimes-router.kruntimes-system.svc",
        "ads_port": 18000,
        "max_timeout": 900.0,
    }
    return Bootstrap(**(values | changes))  # type: ignore[arg-type]


def certificate(label: str) -> Certificate:
    return Certificate(key_pem=f"key {label}".encode(), chain_pem=f"chain {label}".encode(), not_before=0, not_after=1)


def test_the_bootstrap_says_what_it_was_given() -> None:
    rendered = yaml.safe_load(render(TEMPLATE, FOLDER, bootstrap(bind_address="::", gateway_port=9443)))
    api, stats = rendered["static_resources"]["listeners"]
    clusters = {cluster["name"]: cluster for cluster in rendered["static_resources"]["clusters"]}
    manager = api["filter_chains"][0]["filters"][0]["typed_config"]
    endpoint = clusters["router"]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    assert api["address"]["socket_address"] == {"address": "::", "port_value": 9443}
    assert stats["address"]["socket_address"] == {"address": "::", "port_value": 9901}
    assert manager["stream_idle_timeout"] == "910.000s"
    assert endpoint["address"]["socket_address"] == {
        "address": "kruntimes-router.kruntimes-system.svc",
        "port_value": 18000,
    }
    assert rendered["admin"]["address"]["pipe"] == {"path": "/run/kruntimes-gateway/admin.sock", "mode": 0o600}


def test_a_pod_has_connections_for_what_it_holds() -> None:
    """4 × capacity + 64, in a cluster for each size that the router knows, which differ in nothing else."""
    rendered = yaml.safe_load(render(TEMPLATE, FOLDER, bootstrap()))
    clusters = {cluster["name"]: cluster for cluster in rendered["static_resources"]["clusters"]}
    sizes = {"runs-8": 8, "runs-32": 32, "runs": 240}
    assert {name for name in clusters if name.startswith("runs")} == sizes.keys()
    for name, size in sizes.items():
        [bound] = clusters[name]["circuit_breakers"].pop("per_host_thresholds")
        assert bound == {"max_connections": 4 * size + 64}
        del clusters[name]["name"]
    assert clusters["runs-8"] == clusters["runs-32"] == clusters["runs"]


def test_nothing_is_ever_tried_again() -> None:
    text = render(TEMPLATE, FOLDER, bootstrap())
    assert "num_retries" not in text
    assert text.count("retry_policy") == 1, "the stream to the router is opened again, and nothing else"


@pytest.mark.parametrize(
    ("folder", "changes"),
    [
        pytest.param(Path("relative"), {}, id="relative-folder"),
        pytest.param(Path('/run/a"b'), {}, id="quote-in-folder"),
        pytest.param(Path("/run/a\nb: c"), {}, id="line-end-in-folder"),
        pytest.param(Path("/" + "a" * 110), {}, id="folder-too-long-for-a-socket"),
        pytest.param(FOLDER, {"bind_address": "localhost"}, id="bind-to-a-name"),
        pytest.param(FOLDER, {"bind_address": "0.0.0.0\nadmin: {}"}, id="bind-address-with-yaml"),
        pytest.param(FOLDER, {"ads_host": "router}, x: {"}, id="host-with-yaml"),
        pytest.param(FOLDER, {"ads_host": ""}, id="no-host"),
        pytest.param(FOLDER, {"ads_port": 0}, id="no-port"),
        pytest.param(FOLDER, {"gateway_port": 65536}, id="port-too-high"),
    ],
)
def test_what_is_not_what_its_place_is_for_is_refused(folder: Path, changes: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        render(TEMPLATE, folder, bootstrap(**changes))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("router.svc:18000", ("router.svc", 18000), id="name-and-port"),
        pytest.param("router.svc", ("router.svc", 99), id="name"),
        pytest.param("127.0.0.1:5", ("127.0.0.1", 5), id="ipv4"),
        pytest.param("[::1]:5", ("::1", 5), id="ipv6-and-port"),
        pytest.param("[::1]", ("::1", 99), id="ipv6"),
    ],
)
def test_an_address_is_split(text: str, expected: tuple[str, int]) -> None:
    assert host_and_port(text, default_port=99) == expected


@pytest.mark.parametrize("text", ["", "::1", "a:b", "a:1:2", ":5", "[]:5", "a:123456"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        host_and_port(text, default_port=99)


def test_the_secrets_name_files_that_are_watched() -> None:
    for name, content in secrets(FOLDER).items():
        [resource] = json.loads(content)["resources"]
        assert f"{resource['name']}.yaml" == name
        assert '"watched_directory": {"path": "/run/kruntimes-gateway/tls"}' in content


def test_a_certificate_that_somebody_else_keeps_is_followed_where_it_lies() -> None:
    """The volume of a Secret: Envoy watches its folder, and we write none."""
    contents = secrets(FOLDER, Path("/etc/kruntimes/serving"))
    [serving] = json.loads(contents["serving.yaml"])["resources"]
    assert serving["tls_certificate"] == {
        "certificate_chain": {"filename": "/etc/kruntimes/serving/tls.crt"},
        "private_key": {"filename": "/etc/kruntimes/serving/tls.key"},
        "watched_directory": {"path": "/etc/kruntimes/serving"},
    }
    assert {name: text for name, text in contents.items() if name != "serving.yaml"} == {
        name: text for name, text in secrets(FOLDER).items() if name != "serving.yaml"
    }


def test_no_serving_certificate_is_written_where_somebody_else_keeps_it(tmp_path: Path) -> None:
    GatewayFiles(tmp_path).write_certificates(client=certificate("a"), serving=None, ca_pem=b"a")
    written = {path.name for path in (tmp_path / "tls").iterdir() if not path.name.startswith("..")}
    assert written == {"ca.crt", "client.crt", "client.key"}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({}, "it needs both tls.crt and tls.key", id="nothing"),
        pytest.param({"tls.crt": PAIR[0]}, "it needs both tls.crt and tls.key", id="no-key"),
        pytest.param({"tls.crt": b"a", "tls.key": PAIR[1]}, "no certificate and its key", id="not-pem"),
        pytest.param({"tls.crt": PAIR[0], "tls.key": OTHER[1]}, "KEY_VALUES_MISMATCH", id="another-key"),
    ],
)
def test_a_certificate_that_cannot_be_served_is_refused(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        check_serving(tmp_path)


def test_a_certificate_with_its_key_is_taken(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_bytes(PAIR[0])
    (tmp_path / "tls.key").write_bytes(PAIR[1])
    check_serving(tmp_path)


def read(folder: Path) -> dict[str, str]:
    names = ("client.crt", "client.key", "serving.crt", "serving.key", "ca.crt")
    return {name: (folder / "tls" / name).read_text() for name in names}


def test_certificates_change_at_one_stroke(tmp_path: Path) -> None:
    files = GatewayFiles(tmp_path / "gateway")
    for label in ("one", "two", "three", "four"):
        files.write_certificates(client=certificate(label), serving=certificate(f"s {label}"), ca_pem=label.encode())
        assert read(tmp_path / "gateway") == {
            "client.crt": f"chain {label}",
            "client.key": f"key {label}",
            "serving.crt": f"chain s {label}",
            "serving.key": f"key s {label}",
            "ca.crt": label,
        }
    tls = tmp_path / "gateway" / "tls"
    assert (tls / "client.crt").readlink() == Path("..data/client.crt")
    assert len(list(tls.glob("..0*"))) == 2, "the current generation and the one before"


def test_a_generation_that_was_never_finished_is_not_used(tmp_path: Path) -> None:
    files = GatewayFiles(tmp_path)
    files.write_certificates(client=certificate("old"), serving=certificate("old"), ca_pem=b"old")
    (tmp_path / "tls" / "..000000000001").mkdir()
    assert read(tmp_path)["ca.crt"] == "old"
    again = GatewayFiles(tmp_path)
    again.write_certificates(client=certificate("new"), serving=certificate("new"), ca_pem=b"new")
    assert read(tmp_path)["ca.crt"] == "new"


def test_only_our_own_user_may_read(tmp_path: Path) -> None:
    files = GatewayFiles(tmp_path)
    files.write_certificates(client=certificate("a"), serving=certificate("a"), ca_pem=b"a")
    files.write_bootstrap(bootstrap())
    for path in tmp_path.rglob("*"):
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_bootstrap_is_put_in_place_whole_and_last(tmp_path: Path) -> None:
    files = GatewayFiles(tmp_path)
    with pytest.raises(ValueError):
        files.write_bootstrap(bootstrap(ads_host=""))
    assert not (tmp_path / "envoy.yaml").exists()
    for port in (1, 2):
        files.write_bootstrap(bootstrap(gateway_port=port))
        assert f"port_value: {port}" in (tmp_path / "envoy.yaml").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.yaml", "client.yaml", "envoy.yaml", "serving.yaml"]
