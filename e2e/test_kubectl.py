"""kubectl on the control plane, command by command, as a developer's second terminal uses it."""

import json
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Api, eventually, path_of

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl on PATH")
SECONDS = 60
RUN = """
apiVersion: kruntimes.io/v1alpha1
kind: Run
metadata:
  name: {name}
spec:
  runtime: python
  source:
    inlinePath: f.py
    inline: |
      def handler(event):
          print("a line of the handler")
          return 1
  mode:
    function:
      handler: f.handler
"""
Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(stack: Any) -> Kubectl:
    """Runs kubectl and returns its output; `fails=True` expects a failure and returns what it said."""

    def call(*arguments: str, fails: bool = False, text: str | None = None) -> str:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", stack.kubeconfig, "-n", "default", *arguments],
            capture_output=True,
            text=True,
            input=text,
            timeout=SECONDS,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr if fails else done.stdout

    return call


@pytest.fixture
def name() -> str:
    return f"k-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def run(kubectl: Kubectl, name: str) -> Iterator[str]:
    """The name of a Run that is Ready."""
    kubectl("apply", "-f", "-", text=RUN.format(name=name))
    kubectl("wait", f"run/{name}", "--for=condition=Ready", f"--timeout={SECONDS}s")
    yield name
    kubectl("delete", "run", name, "--ignore-not-found", f"--timeout={SECONDS}s")


def test_api_resources_names_our_kinds(kubectl: Kubectl) -> None:
    lines = [line.split() for line in kubectl("api-resources", "--api-group=kruntimes.io", "--no-headers").splitlines()]
    assert sorted((line[0], line[1], line[-1]) for line in lines) == [
        ("runs", "rn", "Run"),
        ("runtimes", "rt", "Runtime"),
    ]


def test_explain_reads_the_schema(kubectl: Kubectl) -> None:
    text = kubectl("explain", "run.spec.retryPolicy.maxAttempts")
    assert "FIELD: maxAttempts <integer>" in text
    assert "KIND:       Run" in text
    assert "containers" in kubectl("explain", "pod.spec") or "containers" in kubectl("explain", "pod.spec.containers")


def test_apply_twice_says_unchanged_and_then_configured(kubectl: Kubectl, run: str) -> None:
    assert kubectl("apply", "-f", "-", text=RUN.format(name=run)).strip().endswith("unchanged")
    changed = RUN.format(name=run).replace("spec:", "spec:\n  ttlSecondsAfterFinished: 60", 1)
    assert kubectl("apply", "-f", "-", text=changed).strip().endswith("configured")


def test_an_unknown_field_is_refused_by_name(kubectl: Kubectl, name: str) -> None:
    wrong = RUN.format(name=name).replace("spec:", "spec:\n  nonsense: 1", 1)
    assert 'unknown field "spec.nonsense"' in kubectl("apply", "-f", "-", text=wrong, fails=True)


def test_a_kind_that_is_not_there_is_named(kubectl: Kubectl) -> None:
    """kubectl looks for it in OpenAPI 3, then in 2, and says what was wrong only when both could be read."""
    said = kubectl("create", "-f", "-", text="apiVersion: v1\nkind: Widget\nmetadata: {name: w}\n", fails=True)
    assert 'no matches for kind "Widget" in version "v1"' in said


def test_an_immutable_field_is_refused_with_our_sentence(kubectl: Kubectl, run: str) -> None:
    said = kubectl("patch", "run", run, "--type=merge", "-p", '{"spec":{"runtime":"bash"}}', fails=True)
    assert "immutable" in said
    assert "runtime" in said


def test_server_side_apply_names_the_manager_that_it_conflicts_with(kubectl: Kubectl, name: str) -> None:
    def config(value: str) -> str:
        return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: {value}\n"

    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", text=config("red"))
    said = kubectl("apply", "--server-side", "--field-manager=two", "-f", "-", text=config("blue"), fails=True)
    assert 'conflict with "one"' in said
    assert ".data.a" in said
    kubectl("apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-", text=config("blue"))
    assert kubectl("get", "configmap", name, "-o", "jsonpath={.data.a}") == "blue"
    kubectl("delete", "configmap", name)


def test_get_watches(stack: Any, kubectl: Kubectl, name: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with (
        open(seen, "w") as output,
        subprocess.Popen(
            ["kubectl", "--kubeconfig", stack.kubeconfig, "-n", "default", "get", "configmaps", "-w", "-o", "name"],
            stdout=output,
        ) as watcher,
    ):
        try:
            eventually("the first list", lambda: "kube-root-ca.crt" in seen.read_text())
            kubectl("create", "configmap", name, "--from-literal=a=b")
            eventually("the new object", lambda: f"configmap/{name}" in seen.read_text())
        finally:
            watcher.terminate()
            watcher.wait(10)
    kubectl("delete", "configmap", name)


def test_label_and_select(kubectl: Kubectl, run: str) -> None:
    kubectl("label", "run", run, "team=blue")
    assert kubectl("get", "runs", "-l", "team=blue", "-o", "name").strip() == f"run.kruntimes.io/{run}"
    assert run not in kubectl("get", "runs", "-l", "team!=blue", "-o", "name")


def test_delete_waits_for_the_finalizer(kubectl: Kubectl, run: str) -> None:
    held = kubectl("get", "run", run, "-o", "jsonpath={.metadata.finalizers[*]}")
    assert held == "kruntimes.io/registration-cleanup"
    kubectl("delete", "run", run, f"--timeout={SECONDS}s")
    assert "NotFound" in kubectl("get", "run", run, fails=True)


def test_tokens_and_rights(kubectl: Kubectl, name: str) -> None:
    kubectl("create", "serviceaccount", name)
    try:
        token = kubectl("create", "token", name, "--duration=10m").strip()
        assert token.count(".") == 2
        account = f"system:serviceaccount:default:{name}"
        assert kubectl("auth", "can-i", "get", "runs", f"--as={account}", fails=True).strip().startswith("no")
        kubectl("create", "role", name, "--verb=get", "--resource=runs.kruntimes.io")
        kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount=default:{name}")
        eventually(
            "the role counts",
            lambda: subprocess_ok(kubectl, "auth", "can-i", "get", "runs.kruntimes.io", f"--as={account}"),
        )
        told = json.loads(kubectl("auth", "whoami", "-o", "json"))
        assert "system:masters" in told["status"]["userInfo"]["groups"]
    finally:
        kubectl("delete", "rolebinding,role,serviceaccount", name, "--ignore-not-found")


def subprocess_ok(kubectl: Kubectl, *arguments: str) -> bool:
    """Whether the command succeeds."""
    try:
        return kubectl(*arguments).strip() == "yes"
    except AssertionError:
        return False


def test_describe_tells_where_a_run_is_and_why(kubectl: Kubectl, run: str) -> None:
    text = kubectl("describe", "run", run)
    assert "FunctionRegistered" in text
    assert "Events:" in text
    assert "Scheduled" in text


def test_logs_of_the_runtimes_pod(api: Api, gateway: Any, kubectl: Kubectl, run: str) -> None:
    found = api.run(run)
    assert found is not None
    with gateway.client() as client:
        assert client.post(path_of(found), content=b"{}", headers=gateway.headers()).status_code == 200
    pod = found["status"]["assignedPod"]
    eventually("the line", lambda: "a line of the handler" in kubectl("logs", pod, "-c", "runtime"))
