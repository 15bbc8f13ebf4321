"""Manifests of Runs, for what the clients declare. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kruntimes.common.api.names import API_VERSION


def function_run(
    *,
    runtime: str,
    handler: str,
    source: str,
    inline_path: str,
    name: str | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The manifest of a function Run with an inline source. Without a name the API server makes one of the file's.

    spec: more of the specification (env, timeout, retryPolicy, …).
    """
    metadata = {"name": name} if name else {"generateName": f"{stem_of(inline_path)}-"}
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": metadata,
        "spec": {
            "runtime": runtime,
            "source": {"inline": source, "inlinePath": inline_path},
            "mode": {"function": {"handler": handler}},
            **(spec or {}),
        },
    }


def task_run(
    *, runtime: str, source: str, entrypoint: str | None, args: Sequence[str], stem: str, name: str | None = None
) -> dict[str, Any]:
    """The manifest of a task Run with an inline source. stem: what the API server makes a name of."""
    task: dict[str, Any] = {"args": list(args)} if args else {}
    if entrypoint is not None:
        task["entrypoint"] = entrypoint
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": name} if name else {"generateName": f"{stem_of(stem)}-"},
        "spec": {"runtime": runtime, "source": {"inline": source}, "mode": {"task": task}},
    }


def stem_of(file: str) -> str:
    """The beginning of a Run's name, made of a file's."""
    stem = re.sub(r"[^a-z0-9]+", "-", file.rsplit("/", 1)[-1].rsplit(".", 1)[0].lower()).strip("-") or "run"
    return stem[:50]
