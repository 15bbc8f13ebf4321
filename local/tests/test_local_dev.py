"""`krt dev` as a person uses it: one command, a line that works when pasted, and nothing left behind."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kruntimes.common.api.manifests import SYSTEM_NAMESPACE
from kruntimes.common.kube import paths
from kruntimes.common.kube.transport import Kube
from kruntimes.local import dev as local_dev
from kruntimes.sdk.client import Client
from kruntimes.sdk.errors import SdkError

pytestmark = pytest.mark.xdist_group("krt-dev")

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

    def __init__(self, *arguments: str | Path, **env: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
        self.output = self.folder.with_suffix(".out")
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [KRT, "dev", *arguments], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(self.folder), **env}, start_new_session=True,
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

    def processes(self) -> dict[int, str]:
        """The command lines of all processes that name its folder anywhere, by PID."""
        marker = str(self.folder).encode()
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                line = (entry / "cmdline").read_bytes()
                told = line + (entry / "environ").read_bytes()
            except OSError:
                continue
            if marker in told:
                found[int(entry.name)] = line.replace(b"\0", b" ").decode("utf-8", "replace")
        return found

    def pids(self, pattern: str) -> list[int]:
        """The processes whose command line begins as *pattern* says, the oldest first; shims name theirs at the end."""
        return sorted(pid for pid, line in self.processes().items() if re.match(pattern, line))

    def running(self, pattern: str) -> int:
        """The oldest of them, as soon as there is one: what a kill took along may be starting again."""
        eventually(f"{pattern} runs", lambda: self.pids(pattern))
        return self.pids(pattern)[0]

    def left(self) -> list[str]:
        """What still exists of it: its processes, and whatever is in the folder."""
        return [*map(str, self.folder.iterdir()), *(line[:80] for line in self.processes().values())]

    def krt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs krt as a person would in another shell, with the kubeconfig of the ready screen alone."""
        kubeconfig = self.said(r"^export KUBECONFIG=(\S+)$")[1]
        env = {name: value for name, value in os.environ.items() if name != "KRT_TOKEN"}
        return subprocess.run(
            [KRT, *arguments], capture_output=True, text=True, timeout=LIMIT, env={**env, "KUBECONFIG": kubeconfig}
        )

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
def dev() -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []

    def start(*arguments: str | Path, **env: str) -> Dev:
        started.append(Dev(*arguments, **env))
        return started[-1]

    yield start
    for one in started:
        one.close()


def shell(line: str) -> str:
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=LIMIT)
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_on_a_real_control_plane_the_line_it_prints_calls_the_function(
    dev: Callable[..., Dev], own_control_plane: Path
) -> None:
    one = dev("--control-plane", own_control_plane, "examples/hello")
    answer = shell(one.said(r"^curl .*$")[0])
    assert re.match(r"HTTP/\S+ 200", answer), answer
    assert one.krt("invoke", "hello", "-d", '{"name": "krt"}').stdout.startswith('{"hello":"krt"')
    assert one.krt("logs", "hello").stdout.count("-- completed, status 200") == 2

    second = dev("--control-plane", own_control_plane, "examples/hello")
    assert second.process.wait(LIMIT) == 1
    assert f"another krt dev (process {one.process.pid})" in second.output.read_text()
    assert second.left() == []

    one.process.send_signal(signal.SIGKILL)
    one.process.wait(STOP_LIMIT)
    eventually("nothing is left", lambda: not one.left(), STOP_LIMIT)


FUNCTION = """
def handler(event):
    print("printed by", "{0}")
    return "{0}"
"""


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_a_changed_file_takes_the_place_of_the_old_one_when_it_works(dev: Callable[..., Dev], tmp_path: Path) -> None:
    file = tmp_path / "greet.py"
    file.write_text(FUNCTION.format("one"))
    one = dev(file)
    answer = shell(one.said(r"^curl .*$")[0])
    assert re.match(r"HTTP/\S+ 200", answer), answer
    assert "x-kruntime-outcome: completed" in answer
    assert answer.endswith("one")

    file.write_text("def handler(event):\n    return (\n")
    one.said(r"greet\.py, line 2: .*never closed\n  greet serves as before")
    file.write_text(FUNCTION.format("one"))
    one.said(r"greet\.py is again what greet serves")
    file.write_text("import no_such_module\n")
    one.said(r"greet\.py: .*no_such_module.*\n  greet serves as before")
    assert one.krt("invoke", "greet", "--id", "before").stdout == "one"

    file.write_text(FUNCTION.format("two"))
    one.said(r"greet\.py changed: greet-\d+ is Ready in the place of greet ")
    assert one.krt("invoke", "greet", "--id", "after").stdout == "two"
    newest = one.said(r"call it:\n\n(curl .*)$")[1]
    assert shell(newest).endswith("two")
    eventually("only the new one is left", lambda: len(one.krt("get", "-o", "name").stdout.split()) == 1)

    with Client.load(Path(one.said(r"^export KUBECONFIG=(\S+)$")[1])) as client:
        log = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods/router/log"
        stamped = list(client.lines(log, query={"timestamps": "true", "tailLines": "1"}))
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z \{", stamped[0]), stamped
        assert client.request("GET", log, query={"limitBytes": "20"}).startswith(b"{")
        assert len(client.request("GET", log, query={"limitBytes": "20"})) == 20
        assert client.request("GET", log, query={"sinceTime": "2999-01-01T00:00:00Z"}) == b""
        with pytest.raises(SdkError, match='previous terminated container "router" in pod "router" not found'):
            client.request("GET", log, query={"previous": "true"})

    told = one.krt("logs", "greet", "--invocation", "after").stdout.splitlines()
    assert told[0].split(maxsplit=1)[1] == "after     printed by two"
    assert "completed, status 200" in told[-1]
    assert "before" not in one.krt("logs", "greet").stdout

    serving = one.krt("get", "-o", "name").stdout.strip().rpartition("/")[2]
    one.krt("cancel", serving)
    one.said(rf"^krt dev: Run {serving} ended as Cancelled: .*\n  to have it back: save greet\.py again$")
    file.write_text(FUNCTION.format("two"))
    one.said(rf"greet\.py changed: greet-\d+ is Ready in the place of {serving} ")
    assert one.krt("invoke", "greet").stdout == "two"

    one.process.send_signal(signal.SIGKILL)
    one.process.wait(STOP_LIMIT)
    eventually("nothing is left", lambda: not one.left(), STOP_LIMIT)


KILLED = {
    "authz": r"\S*python \S*-m kruntimes\.authz",
    "envoy": r"\S*/envoy ",
    "router": r"\S*python \S*-m kruntimes\.router",
    "operator": r"\S*python \S*-m kruntimes\.controller",
    "runtimed": r"\S*python \S*-m kruntimes\.runtimed",
    "Runtime Server": r"\S*python \S*-m kruntimes\.runtime --host python",
}


@pytest.mark.timeout(300)
def test_a_kill_of_each_process_is_recovered_from_and_that_of_the_control_plane_is_the_end(
    dev: Callable[..., Dev], tmp_path: Path
) -> None:
    (tmp_path / "die.py").write_text("import os\ndef handler(event):\n    os.kill(os.getpid(), 9)\n")
    one = dev(tmp_path / "die.py")
    one.said(r"^curl .*$")
    (tmp_path / "again.py").write_text("def handler(event):\n    return event\n")

    assert one.krt("invoke", "die").returncode == 1, "a killed host is a function error"
    for what, pattern in KILLED.items():
        victim = one.running(pattern)
        os.kill(victim, signal.SIGKILL)
        eventually(f"{what} is gone", lambda victim=victim: victim not in one.processes())  # type: ignore[misc]
        eventually(f"{what} runs again", lambda pattern=pattern: one.pids(pattern))  # type: ignore[misc]

        def a_new_run_works() -> bool:
            made = one.krt("run", str(tmp_path / "again.py"), "--handler", "again.handler", "--wait")
            return one.krt("invoke", made.stdout.strip() or "none", "-d", '{"n":1}').stdout == '{"n":1}'

        eventually(f"a new Run works after a kill of {what}", a_new_run_works)
        eventually(
            f"the file's own Run answers after a kill of {what}", lambda: one.krt("invoke", "die").returncode == 1
        )
    assert one.process.poll() is None, one.output.read_text()
    for service in ("router", "gateway"):
        asyncio.run(delete_pod(Path(one.said(r"^export KUBECONFIG=(\S+)$")[1]), SYSTEM_NAMESPACE, service))
        one.said(f"Pod {service} was deleted, and is started again")
    eventually("a new Run works after the services' Pods were deleted", a_new_run_works)
    for told in ("operator of Pod operator ended, and is started again", r"Pod python-\S+ is lost"):
        one.said(told)

    os.kill(one.running(r".*/guard\.py "), signal.SIGKILL)
    os.kill(one.running(r"\S*python \S*-m kruntimes\.local\.apiserver"), signal.SIGKILL)
    assert one.ended() == 1
    assert "krt dev: the control plane ended" in one.output.read_text()
    assert "Traceback" not in one.output.read_text()


async def delete_pod(kubeconfig: Path, namespace: str, name: str) -> None:
    kube = await Kube.connect(kubeconfig=kubeconfig)
    try:
        await kube.delete(paths.pods(namespace, name))
    finally:
        await kube.close()


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        pytest.param("no-such-program", 127, "no-such-program: no such program", id="unknown"),
        pytest.param(__file__, 126, "it cannot be executed", id="not-executable"),
        pytest.param("./no/such/file", 127, "./no/such/file: no such program", id="no-such-file"),
    ],
)
def test_a_command_that_cannot_run_is_told_before_anything_starts(
    program: str, status: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    unread = tmp_path / "no-such-folder"
    assert local_dev.main(local_dev.Options(path=unread, command=(program, "an argument"))) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]


class Trap:
    """An API server that must not be asked: a listening socket that counts who comes."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.kubeconfig = folder / "theirs"
        server = f"https://127.0.0.1:{self._socket.getsockname()[1]}"
        self.kubeconfig.write_text(
            "{current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}], "
            f"clusters: [{{name: x, cluster: {{server: '{server}'}}}}], users: [{{name: x, user: {{token: secret}}}}]}}"
        )

    def touched(self) -> bool:
        """Whether anybody has connected; closes it."""
        with self._socket:
            try:
                self._socket.accept()[0].close()
            except BlockingIOError:
                return False
            return True


def test_a_command_has_the_stack_in_its_environment_and_another_cluster_is_not_touched(
    dev: Callable[..., Dev], tmp_path: Path
) -> None:
    script = (
        'krt get hello -o json | grep -q FunctionRegistered && krt invoke hello -d \'{"name": "it"}\' && '
        'test -s "$KRT_CACERT" -a -n "$KRT_TOKEN" -a -n "$KRT_GATEWAY" -a -n "$KUBECONFIG" && exit 7'
    )
    trap = Trap(tmp_path)
    one = dev(
        "examples/hello", "--", "env", f"PATH={KRT.parent}:{os.environ['PATH']}", "sh", "-c", script,
        KUBECONFIG=str(trap.kubeconfig), HOME=str(tmp_path),
    )  # fmt: skip
    one.said(r'"hello": ?"it"')
    assert one.ended() == 7
    assert not trap.touched()


STARTS = int(os.environ.get("KRT_STARTS", "3"))
"""How many starts and stops; each is ended at another moment and in another way."""
MOMENTS = (r"definitions and roles", r"operator is ready", r"gateway is ready", r"krt dev is ready after")
WAYS = (signal.SIGINT, signal.SIGKILL, signal.SIGTERM)


@pytest.mark.timeout(STARTS * LIMIT)
def test_starts_and_stops_leave_nothing(dev: Callable[..., Dev]) -> None:
    for number in range(STARTS):
        one = dev("examples/hello")
        one.said(MOMENTS[number % len(MOMENTS)])
        way = WAYS[number % len(WAYS)]
        one.process.send_signal(way)
        assert one.ended() == {signal.SIGINT: 0, signal.SIGKILL: -9, signal.SIGTERM: 143}[way]


def maps(pid: int) -> str:
    """What *pid* has loaded; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(lambda one: "_ssl." in maps(one.process.pid), id="it-imports"),
        pytest.param(lambda one: one.output.read_text(), id="first-word"),
        pytest.param(lambda one: list(one.folder.glob("*/logs/*")), id="it-logs"),
        pytest.param(lambda one: list(one.folder.glob("*/control-plane/*")), id="control-plane-starts"),
        pytest.param(lambda one: list(one.folder.glob("*/control-plane/admin.kubeconfig")), id="control-plane-serves"),
        pytest.param(lambda one: list(one.folder.glob("*/node.pem")), id="node-starts"),
        pytest.param(lambda one: list(one.folder.glob("*/kubeconfig")), id="installation-begins"),
    ],
)
def test_ctrl_c_at_any_moment_of_a_start_ends_it_alike(
    dev: Callable[..., Dev], moment: Callable[[Dev], object]
) -> None:
    one = dev()
    eventually("the moment", lambda: moment(one))
    one.process.send_signal(signal.SIGINT)
    assert one.ended() == 0, one.output.read_text()
    said = one.output.read_text()
    assert all(line.startswith("krt dev: ") for line in said.splitlines()), said


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        pytest.param("x.yaml", "kind: Run\n", "x.yaml: an object without apiVersion and kind", id="not-an-object"),
        pytest.param(
            "x.yaml",
            "apiVersion: kruntimes.io/v1alpha1\nkind: Run\nmetadata: {name: x}\nspec: {source: {inlinePath: x.py}}\n",
            "Run x names x.py, which does not lie beside it",
            id="no-such-file",
        ),
        pytest.param("x.py", "def handler(event)\n", "x.py, line 1: expected ':'", id="not-python"),
        pytest.param("x.sh", "handler() {\n", "x.sh, line 2: syntax error", id="not-bash"),
    ],
)
def test_a_folder_that_cannot_be_applied_is_refused_before_anything_starts(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    done = subprocess.run([KRT, "dev", tmp_path], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
