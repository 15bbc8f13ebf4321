"""A second terminal: kubectl declares, watches and deletes; curl invokes by what the status publishes."""

import base64
import json
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from support import Gateway, eventually

pytestmark = pytest.mark.skipif(
    not (shutil.which("kubectl") and shutil.which("curl")), reason="needs kubectl and curl on PATH"
)
MANIFEST = """
apiVersion: kruntimes.io/v1alpha1
kind: Run
metadata:
  name: {name}
spec:
  runtime: python
  source:
    inlinePath: greet.py
    inline: |
      def handler(event):
          return {{"greeting": "hello " + event["name"]}}
  mode:
    function:
      handler: greet.handler
"""


def test_declare_watch_invoke_and_delete(stack: Any, gateway: Gateway, tmp_path: Path) -> None:
    name = f"t-{uuid.uuid4().hex[:10]}"
    (tmp_path / "run.yaml").write_text(MANIFEST.format(name=name))

    def kubectl(*arguments: str) -> str:
        done = subprocess.run(
            ["kubectl", "--kubeconfig", stack.kubeconfig, "-n", "default", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert kubectl("apply", "--server-side", "-f", str(tmp_path / "run.yaml")).strip().endswith("serverside-applied")
    kubectl("wait", f"run/{name}", "--for=condition=Ready", "--timeout=30s")
    columns = kubectl("get", "rn", name).splitlines()
    assert columns[0].split() == ["NAME", "PHASE", "ASSIGNED", "POD", "RUNTIME", "AGE"]
    assert columns[1].split()[1] == "Ready"
    run = json.loads(kubectl("get", "run", name, "-o", "json"))
    endpoint = run["status"]["endpoint"]
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(endpoint["caBundle"]))
    (tmp_path / "header").write_text(f"Authorization: Bearer {gateway.token}\n")
    answer = subprocess.run(
        [
            "curl",
            "-sS",
            "--cacert",
            tmp_path / "ca.crt",
            "-H",
            f"@{tmp_path / 'header'}",
            "-H",
            "Content-Type: application/json",
            "-d",
            '{"name": "you"}',
            "-D",
            "-",
            endpoint["url"],
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    head, body = answer.replace("\r\n", "\n").split("\n\n", 1)
    assert head.split("\n")[0].split()[1] == "200", answer
    assert "x-kruntime-outcome: completed" in head.lower()
    assert json.loads(body) == {"greeting": "hello you"}
    assert run["metadata"]["finalizers"] == ["kruntimes.io/registration-cleanup"]
    kubectl("delete", "run", name, "--timeout=30s")
    eventually("the Run is gone", lambda: not kubectl("get", "runs", "-o", "name").count(name))
