"""A running kruntimes for the end-to-end tests.

`krt dev -- COMMAND` sets KUBECONFIG, KRT_GATEWAY, KRT_TOKEN and KRT_CACERT; where they are set, the tests use what
they name. Otherwise one `krt dev` is started for the whole test run, on the control plane of the root conftest.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Api, Gateway, eventually

START_SECONDS = 60.0
STOP_SECONDS = 30.0
NAMES = ("KUBECONFIG", "KRT_GATEWAY", "KRT_TOKEN", "KRT_CACERT")


@dataclass(frozen=True)
class Stack:
    """What COMMAND of `krt dev -- COMMAND` is told."""

    kubeconfig: Path
    gateway: Gateway


def _stack(environment: dict[str, str]) -> Stack:
    gateway = Gateway(environment["KRT_GATEWAY"], Path(environment["KRT_CACERT"]), environment["KRT_TOKEN"])
    return Stack(Path(environment["KUBECONFIG"]), gateway)


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A gateway, a token for it, and an administrator's kubeconfig."""
    if all(os.environ.get(name) for name in NAMES):
        yield _stack(dict(os.environ))
        return
    control_plane = request.getfixturevalue("control_plane")
    folder = tmp_path_factory.mktemp("stack")
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
