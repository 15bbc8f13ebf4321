"""The API servers that the contract suite holds to the same behaviour (design §10).

`real` is the kube-apiserver that `KUBECONFIG` or the root conftest's fixture names; `embedded` is the one of `krt dev`,
started here as its own process. CONTRACT_SERVERS=real (or embedded) limits a run to one. A test that needs what not
every server has says so: `@pytest.mark.capability("…")`.
"""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from contract.client import Api, at, eventually
from contract.kinds import install

MODULE = "kruntimes.local.apiserver"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
SIGNING_KEYS = ("pki/sa.key", "serviceaccounts.pem")
"""Where the key of ServiceAccount tokens lies beside the kubeconfig, in a test cluster and in an embedded server."""


def _available() -> list[str]:
    chosen = os.environ.get("CONTRACT_SERVERS")
    if chosen:
        return chosen.split(",")
    try:
        startable = importlib.util.find_spec(f"{MODULE}.__main__") is not None
    except ModuleNotFoundError:
        startable = False
    return ["real", "embedded"] if startable else ["real"]


@dataclass
class Server:
    """One API server under test.

    capabilities: what it has beyond the common ground. signing_key: of ServiceAccount tokens, where it can be read.
    """

    name: str
    kubeconfig: Path
    capabilities: frozenset[str]
    admin: Api
    signing_key: Path | None = None
    namespaces: dict[str, str] = field(default_factory=dict)

    def namespace(self, purpose: str) -> str:
        """The namespace that all tests of one *purpose* share; made when first asked for."""
        if purpose not in self.namespaces:
            self.namespaces[purpose] = self.new_namespace()
        return self.namespaces[purpose]

    def new_namespace(self) -> str:
        """A namespace of its own, removed at the end of the run at the latest."""
        name = f"contract-{uuid.uuid4().hex[:10]}"
        self.admin.create(at("namespaces"), {"metadata": {"name": name}}).ok(201)
        self.namespaces[name] = name
        account = at("serviceaccounts", name, "default")
        eventually(f"default ServiceAccount in {name}", lambda: self.admin.get(account).code == 200)
        return name


@pytest.fixture(scope="session")
def embedded_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The administrator's kubeconfig of an embedded API server, started for the whole run."""
    state = tmp_path_factory.mktemp("embedded")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with open(state / "output", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "--listen", address, "--state", state],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    kubeconfig = state / "admin.kubeconfig"

    def ready() -> bool:
        assert process.poll() is None, f"{MODULE} ended: {(state / 'output').read_text()[-3000:]}"
        if not kubeconfig.exists():
            return False
        try:
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=1):
                return True
        except OSError:
            return False

    try:
        eventually(f"{MODULE} listens", ready, START_SECONDS)
        yield kubeconfig
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


@contextmanager
def _opened(name: str, kubeconfig: Path) -> Iterator[Server]:
    admin = Api.connect(kubeconfig)
    eventually(f"{name} API server ready", lambda: admin.get("/readyz").code == 200)
    key = next((k for k in (kubeconfig.parent / place for place in SIGNING_KEYS) if k.exists()), None)
    capabilities = {name} | ({"signing-key"} if key else set())
    server = Server(name, kubeconfig, frozenset(capabilities), admin, key)
    try:
        install(admin)
        yield server
    finally:
        for namespace in set(server.namespaces.values()):
            admin.delete(at("namespaces", None, namespace))
        admin.close()


@pytest.fixture(scope="session")
def real(control_plane: Path) -> Iterator[Server]:
    """The kube-apiserver; like the other one it lives until the end of the run, whatever the order of the tests."""
    with _opened("real", control_plane) as server:
        yield server


@pytest.fixture(scope="session")
def embedded(embedded_kubeconfig: Path) -> Iterator[Server]:
    """The API server of `krt dev`."""
    with _opened("embedded", embedded_kubeconfig) as server:
        yield server


@pytest.fixture(scope="session", params=_available())
def server(request: pytest.FixtureRequest) -> Server:
    """The API server under test, with the CRDs of kruntimes and of this suite installed."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def _capable(request: pytest.FixtureRequest) -> None:
    wanted = {mark.args[0] for mark in request.node.iter_markers("capability")}
    if wanted:
        missing = wanted - request.getfixturevalue("server").capabilities
        if missing:
            pytest.skip(f"this server has no {', '.join(sorted(missing))}")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the suite's marker."""
    config.addinivalue_line("markers", "capability(name): skip on API servers without it")


@pytest.fixture(scope="session")
def api(server: Server) -> Api:
    """An administrator (system:masters)."""
    return server.admin


@pytest.fixture
def ns(server: Server, request: pytest.FixtureRequest) -> str:
    """The namespace that the tests of one file share; names in it come from `name`."""
    return server.namespace(request.module.__name__)


@pytest.fixture
def name() -> str:
    """A name that nothing else has."""
    return f"n{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_namespace(server: Server) -> Callable[[], str]:
    """Makes namespaces for a test that must be alone in one."""
    return server.new_namespace
