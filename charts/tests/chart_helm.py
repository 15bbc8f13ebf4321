"""helm for tests: renders the chart, and returns what it said where it refuses."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parent.parent / "kruntimes"
NAMESPACE = "kruntimes-system"
SECONDS = 60.0

needs_helm = pytest.mark.skipif(not shutil.which("helm"), reason="needs helm on PATH")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One helm command; it reaches no cluster."""
    return subprocess.run(["helm", *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)


def sets(values: dict[str, Any]) -> list[str]:
    """Values as arguments; keys are paths with dots."""
    return [part for key, value in values.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]


def rendered(values: dict[str, Any], *, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The objects of the chart with *values*, hooks among them, definitions not."""
    done = helm("template", "kruntimes", str(CHART), "--namespace", namespace, *sets(values))
    assert done.returncode == 0, done.stderr
    return [obj for obj in yaml.safe_load_all(done.stdout) if obj]


def refused(values: dict[str, Any], *, namespace: str = NAMESPACE) -> str:
    """What helm says where it renders nothing."""
    done = helm("template", "kruntimes", str(CHART), "--namespace", namespace, *sets(values))
    assert done.returncode != 0, f"not refused: {values}"
    return done.stderr
