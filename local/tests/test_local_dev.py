"""`krt dev` as a person uses it: one command, a line that works when pasted, and nothing left behind.

It is the only node of the control plane it stands on, so these tests start one of their own.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAUNCHER = Path(os.environ.get("KRUNTIMES_TEST_CLUSTER", ROOT.parent / "shared" / "cluster" / "cluster"))
KRT = Path(sys.executable).with_name("krt")
LIMIT = 90.0
STOP_LIMIT = 20.0


def eventually(what: str, check: Callable[[], object], limit: float = LIMIT) -> object:
    end = time.monotonic() + limit
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"not within {limit} s: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def own_control_plane() -> Iterator[Path]:
    if not LAUNCHER.exists():
        pytest.skip("no launcher for a control plane of our own")
    name = f"dev-{os.getpid()}"
    subprocess.run([LAUNCHER, "up", "--name", name], check=True, timeout=180, stdout=subprocess.DEVNULL)
    try:
        shown = subprocess.run(
            ["sh", "-c", f'eval "$("$0" env --name {name})" && printf %s "$KUBECONFIG"', LAUNCHER],
            check=True, timeout=60, capture_output=True, text=True,
        )  # fmt: skip
        yield Path(shown.stdout)
    finally:
        subprocess.run([LAUNCHER, "down", "--name", name], check=False, timeout=60, stdout=subprocess.DEVNULL)


class Dev:
    """One `krt dev` with a folder for temporary files of its own, by which everything that is its is known."""

    def __init__(self, kubeconfig: Path, *arguments: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
        self.output = self.folder.with_suffix(".out")
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [KRT, "dev", "--control-plane", kubeconfig, *arguments],
                cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(self.folder)}, start_new_session=True,
            )  # fmt: skip

    def said(self, pattern: str) -> re.Match[str]:
        """Waits until the output has a line that matches *pattern*."""

        def look() -> re.Match[str] | None:
            text = self.output.read_text()
            found = re.search(pattern, text, re.MULTILINE)
            assert found or self.process.poll() is None, text
            return found

        found = eventually(pattern, look)
        assert isinstance(found, re.Match)
        return found

    def left(self) -> list[str]:
        """What still exists of it: processes that name its folder anywhere, and whatever is in the folder."""
        marker = str(self.folder).encode()
        found = [str(path) for path in self.folder.iterdir()]
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if marker in told:
                found.append(told[:80].replace(b"\0", b" ").decode("utf-8", "replace"))
        return found

    def ended(self) -> int:
        """Waits for the end; returns the exit status when nothing is left."""
        status = self.process.wait(STOP_LIMIT)
        eventually("nothing is left", lambda: not self.left(), STOP_LIMIT)
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        eventually("nothing is left", lambda: not self.left(), STOP_LIMIT)
        shutil.rmtree(self.folder)
        self.output.unlink()


@pytest.fixture
def dev(own_control_plane: Path) -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []

    def start(*arguments: str) -> Dev:
        started.append(Dev(own_control_plane, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


def shell(line: str) -> str:
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=LIMIT)
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_the_line_it_prints_calls_the_function_and_a_kill_leaves_nothing(dev: Callable[..., Dev]) -> None:
    one = dev("examples/hello")
    line = one.said(r"^curl .*$")[0]
    assert "krt dev is ready after" in one.output.read_text()
    answer = shell(line)
    assert re.match(r"HTTP/\S+ 200", answer), answer
    assert '"hello":"you"' in answer.replace(" ", "")
    assert "x-kruntime-outcome: completed" in answer
    assert "x-kruntime-invocation-id: " in answer

    second = dev("examples/hello")
    assert second.process.wait(LIMIT) == 1
    assert f"another krt dev (process {one.process.pid})" in second.output.read_text()
    assert second.left() == []

    one.process.send_signal(signal.SIGKILL)
    one.process.wait(STOP_LIMIT)
    eventually("nothing is left", lambda: not one.left(), STOP_LIMIT)


def test_a_command_has_the_stack_in_its_environment_and_its_status_is_ours(dev: Callable[..., Dev]) -> None:
    script = (
        'krt get hello -o json | grep -q FunctionRegistered && krt invoke hello -d \'{"name": "it"}\' && '
        'test -s "$KRT_CACERT" -a -n "$KRT_TOKEN" -a -n "$KRT_GATEWAY" -a -n "$KUBECONFIG" && exit 7'
    )
    one = dev("examples/hello", "--", "env", f"PATH={KRT.parent}:{os.environ['PATH']}", "sh", "-c", script)
    one.said(r'"hello": ?"it"')
    assert one.ended() == 7


def test_ctrl_c_while_it_starts_ends_it_in_order(dev: Callable[..., Dev]) -> None:
    one = dev("examples/hello")
    one.said(r"operator is ready")
    one.process.send_signal(signal.SIGINT)
    assert one.ended() == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("kind: Run\n", "hello.yaml: an object without apiVersion and kind", id="not-an-object"),
        pytest.param(
            "apiVersion: kruntimes.io/v1alpha1\nkind: Run\nmetadata: {name: x}\nspec: {source: {inlinePath: x.py}}\n",
            "Run x names x.py, which does not lie beside it",
            id="no-such-file",
        ),
    ],
)
def test_a_folder_that_cannot_be_applied_is_refused_before_anything_starts(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "hello.yaml").write_text(text)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    done = subprocess.run(
        [KRT, "dev", "--control-plane", kubeconfig, tmp_path], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_control_plane_it_says_what_it_needs() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    done = subprocess.run([KRT, "dev", "examples/hello"], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 2
    assert "name an administrator's kubeconfig with --control-plane" in done.stderr.replace("\n", " ")
