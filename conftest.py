"""What tests share: a real control plane where there is one.

`KUBECONFIG` names it, or a launcher beside the checkout starts one that ends with the test run. Where there
is neither, tests that ask for the fixture are skipped, and the summary counts them.

With several workers (`pytest -n 4 --dist loadgroup`) each takes one file after the other. Tests that would see what
others do on one control plane stay together on one worker: the end of this file says which.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

LAUNCHER = Path(
    os.environ.get("KRUNTIMES_TEST_CLUSTER", Path(__file__).parent.parent / "shared" / "cluster" / "cluster")
)
START_SECONDS = 180
"""A control plane is up in ten seconds; on a busy machine it may take longer, and never more than this."""


settings.register_profile("busy-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy-machine")


def pytest_configure(config: pytest.Config) -> None:
    """Says that this thread has no event loop: pytest-asyncio on Python 3.11 would make one and never close it."""
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of an administrator's kubeconfig for a real kube-apiserver, shared by the whole test run.

    Tests must use namespaces of their own, or remove what they made.
    """
    given = os.environ.get("KUBECONFIG")
    if given:
        yield Path(given)
        return
    if not LAUNCHER.exists():
        pytest.skip("no control plane: set KUBECONFIG")
    name = f"test-{os.getpid()}"
    subprocess.run([LAUNCHER, "up", "--name", name], check=True, timeout=START_SECONDS, stdout=subprocess.DEVNULL)
    try:
        shell = subprocess.run(
            ["sh", "-c", f'eval "$("$0" env --name {name})" && printf %s "$KUBECONFIG"', LAUNCHER],
            check=True,
            timeout=START_SECONDS,
            capture_output=True,
            text=True,
        )
        yield Path(shell.stdout)
    finally:
        subprocess.run(
            [LAUNCHER, "down", "--name", name], check=False, timeout=START_SECONDS, stdout=subprocess.DEVNULL
        )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Puts the tests that act on the real control plane into one group.

    A kruntimes that one test starts on it would answer what another does there by hand. Where no KUBECONFIG is given
    each worker has a control plane of its own, so the contract suite can be another group.
    """
    server = getattr(item, "callspec", None)
    contract = server is not None and server.params.get("server") == "real"
    if contract and not os.environ.get("KUBECONFIG"):
        item.add_marker(pytest.mark.xdist_group("contract"))
    elif contract or "control_plane" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("control-plane"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Lets workers begin with the groups, which take longest and mostly wait; all else stays in its random order."""
    if config.getoption("dist", "no") == "loadgroup":
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Fails where a worker would not tell the groups: tests of one control plane would then disturb each other."""
    if session.config.getoption("loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                raise pytest.UsageError(f"the group of {item.nodeid} is lost between pytest and pytest-xdist")


class ByFileOrGroup(LoadGroupScheduling):
    """Gives workers a file at a time, so that what its tests share is made once; a group is one piece, too."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.rpartition("@")[2] if "@" in nodeid.rpartition("]")[2] else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    """How `--dist loadgroup` is understood here."""
    if config.getoption("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return ByFileOrGroup(config, log)
