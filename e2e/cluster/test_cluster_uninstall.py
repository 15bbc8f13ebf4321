"""`helm uninstall` with Runs present, and what a newcomer reads in the README."""

import re
from collections.abc import Iterator

import pytest
from cluster.release import DEFINITIONS, ROOT, Cluster
from support import Api

pytestmark = [pytest.mark.last, pytest.mark.timeout(600)]
SOURCE = "import time\ndef handler(event):\n    time.sleep(event)\n    return 1\n"
TESTS_OWN = {"ServiceAccount", "Role", "RoleBinding"}
"""What other tests have made for their callers."""


def _left(cluster: Cluster) -> set[str]:
    """What an uninstalled release has left behind."""
    new = cluster.everything() - cluster.before
    return {line for line in new if line.split()[0] not in TESTS_OWN or "kruntimes" in line}


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Api]:
    """The Kubernetes API as an administrator."""
    with Api(cluster.kubeconfig) as client:
        yield client


def _runs(cluster: Cluster, admin: Api) -> None:
    """A Run that is Ready, one that waits for a Runtime that nobody has, and one that has ended."""
    cluster.runtime_ready("python", 1)
    admin.declare("ready", SOURCE, handler="case.handler")
    admin.declare("ended", SOURCE, handler="case.handler")
    admin.declare("waiting", SOURCE, handler="case.handler", runtime="nobody-has-this")
    admin.ready("ready")
    admin.ready("ended")
    cluster.kubectl("patch", "run", "ended", "-n", "default", "--type=merge", "-p", '{"spec":{"cancelRequested":true}}')
    cluster.kubectl("wait", "run/ended", "-n", "default", "--for=jsonpath={.status.phase}=Cancelled", "--timeout=60s")


def test_only_the_definitions_stay(cluster: Cluster, admin: Api) -> None:
    cluster.install()
    _runs(cluster, admin)
    cluster.uninstall()
    assert _left(cluster) == DEFINITIONS
    cluster.kubectl("delete", "crd", "runs.kruntimes.io", "runtimes.kruntimes.io", "--timeout=60s")


def test_nothing_stays_where_the_definitions_may_go(cluster: Cluster, admin: Api) -> None:
    cluster.install()
    cluster.upgrade(**{"crds.keep": False})
    _runs(cluster, admin)
    cluster.uninstall()
    assert _left(cluster) == set()


def test_the_readme_leads_to_an_answer(cluster: Cluster) -> None:
    """Each command of the README's section for a cluster, as it stands there."""
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"## On a cluster\n.*?```\n(.*?)```", readme, re.S)
    assert block is not None
    script = re.sub(r"^\$ ", "", block[1], flags=re.M)
    commands, _, expected = script.rpartition("\n{")
    assert len(re.findall(r"^(?!\s)", commands.replace("\\\n", " "), flags=re.M)) == 4, commands
    cluster.uninstall()
    try:
        said = cluster.paste(commands)
        assert "{" + expected.strip() in said, said
    finally:
        cluster.kubectl("delete", "-n", "default", "-f", "examples/kubernetes/hello.yaml", "--ignore-not-found")
        cluster.uninstall()
