"""A running kruntimes for the end-to-end tests.

`krt dev -- COMMAND` sets KUBECONFIG, KRT_GATEWAY, KRT_TOKEN and KRT_CACERT; where they are set, the tests use what
they name. Otherwise one `krt dev` is started for the whole test run, on the control plane of the root conftest.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.register_assert_rewrite("gateway_table", "support")

from cluster.release import NODE_PORT, Cluster  # noqa: E402
from gateway_table import Observer, Target, check_counted, check_logged  # noqa: E402
from support import Api, Gateway, eventually, path_of  # noqa: E402

START_SECONDS = 60.0
STOP_SECONDS = 30.0
CHART_TESTS = Path(__file__).parent / "cluster"
USER = "e2e"
NAMES = ("KUBECONFIG", "KRT_GATEWAY", "KRT_TOKEN", "KRT_CACERT")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--cluster`: test the chart on the cluster of KUBECONFIG."""
    parser.addoption("--cluster", action="store_true", help="install the chart on the cluster of KUBECONFIG")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The chart's own tests are not for `krt dev`; what plays a part of kruntimes by hand is not for the chart."""
    if config.getoption("--cluster"):
        return True if collection_path.name in ("contract", "model") else None
    return True if collection_path == CHART_TESTS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What uninstalls comes last, whatever the order of the rest; on a cluster no test sees a function's files."""
    if config.getoption("--cluster"):
        for item in items:
            if item.get_closest_marker("shared_files"):
                item.add_marker(pytest.mark.skip("the function's files are in its Pod"))
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


@dataclass(frozen=True)
class Stack:
    """What COMMAND of `krt dev -- COMMAND` is told."""

    kubeconfig: Path
    gateway: Gateway


def _stack(environment: dict[str, str]) -> Stack:
    gateway = Gateway(environment["KRT_GATEWAY"], Path(environment["KRT_CACERT"]), environment["KRT_TOKEN"])
    return Stack(Path(environment["KUBECONFIG"]), gateway)


@pytest.fixture(scope="session")
def release_cluster(control_plane: Path) -> Iterator[Cluster]:
    """The cluster of KUBECONFIG; at the end the release is gone."""
    cluster = Cluster.of(control_plane)
    yield cluster
    cluster.uninstall()


def _release(cluster: Cluster, folder: Path) -> Stack:
    """The chart, and a ServiceAccount that may do everything with Runs of the namespace `default`."""
    cluster.install()
    if f"serviceaccount/{USER}" not in cluster.kubectl("get", "serviceaccounts", "-n", "default", "-o", "name"):
        cluster.kubectl("create", "serviceaccount", USER, "-n", "default")
        for role in ("view", "edit"):
            binding = ("create", "rolebinding", f"{USER}-{role}", f"--clusterrole=kruntimes-{role}")
            cluster.kubectl(*binding, f"--serviceaccount=default:{USER}", "-n", "default")
    cluster.runtime_ready("python", 2)
    cluster.runtime_ready("bash", 1)
    ca = folder / "ca.crt"
    ca.write_text(cluster.json("configmap", "kruntimes-ca", "-n", "default")["data"]["ca.crt"])
    gateway = Gateway(f"https://{cluster.address}:{NODE_PORT}", ca, cluster.token(USER))
    return Stack(cluster.kubeconfig, gateway)


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A gateway, a token for it, and an administrator's kubeconfig."""
    if all(os.environ.get(name) for name in NAMES):
        yield _stack(dict(os.environ))
        return
    folder = tmp_path_factory.mktemp("stack")
    if request.config.getoption("--cluster"):
        yield _release(request.getfixturevalue("release_cluster"), folder)
        return
    control_plane = request.getfixturevalue("control_plane")
    told = folder / "environment"
    command = ["sh", "-c", f'env -0 > "{told}.part" && mv "{told}.part" "{told}" && exec cat > /dev/null']
    krt = Path(sys.executable).with_name("krt")
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            [krt, "dev", "--control-plane", control_plane, "--", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

        def ready() -> bool:
            assert process.poll() is None, f"krt dev ended: {(folder / 'output').read_text()[-3000:]}"
            return told.exists()

        try:
            eventually("krt dev ready", ready, START_SECONDS)
            yield _stack(dict(v.split("=", 1) for v in told.read_text().split("\0") if "=" in v))
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
    assert process.returncode == 0, (folder / "output").read_text()[-3000:]


@pytest.fixture(scope="session")
def api(stack: Stack) -> Iterator[Api]:
    """The Kubernetes API as an administrator."""
    with Api(stack.kubeconfig) as client:
        yield client


@pytest.fixture(scope="session")
def gateway(stack: Stack) -> Gateway:
    """The gateway, with a token that may do everything with Runs of the namespace `default`."""
    return stack.gateway


RUNS = {"apiGroups": ["kruntimes.io"], "resources": ["runs"]}


@pytest.fixture(scope="session")
def rows_of(api: Api, gateway: Gateway) -> Iterator[Target]:
    """A Ready function and callers by name, for every table."""
    with api.function("def handler(event):\n    return event\n") as run:
        meta = run["metadata"]
        fields = {
            "namespace": meta["namespace"],
            "runtime": run["spec"]["runtime"],
            "uid": meta["uid"],
            "UID": meta["uid"].upper(),
            "nowhere": str(uuid.uuid4()),
            "token": gateway.token,
        }
        one = [{**RUNS, "verbs": ["get"], "resourceNames": [meta["name"]]}]
        tokens = {
            "user": gateway.token,
            "getter": api.user(f"table-{meta['name']}", one),
            "stranger": api.user("table-stranger", []),
            "audience": api.user("table-audience", one, audience="elsewhere"),
            "garbage": "not.a.token",
            "forged": f"{gateway.token[:-4]}AAAA",
        }
        yield Target(gateway, path_of(run), fields, tokens)


@pytest.fixture(scope="module")
def table(api: Api, rows_of: Target) -> Iterator[Target]:
    """The target of one file's rows; at its end the gateway's counters and log must tell of each of them."""
    observer = Observer(api)
    target = Target(rows_of.gateway, rows_of.path, rows_of.fields, rows_of.tokens)
    before = observer.counters()
    yield target
    check_counted(before, observer.counters(), target)
    check_logged(observer, target)
