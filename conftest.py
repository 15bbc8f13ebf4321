"""What tests share: a real control plane where there is one.

`KUBECONFIG` names it, or a launcher beside the checkout starts one that ends with the test run. Where there
is neither, tests that ask for the fixture are skipped, and the summary counts them.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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
