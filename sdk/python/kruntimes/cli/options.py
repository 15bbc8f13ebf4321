"""Options that every command which talks to an API server has, and what they turn into."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kruntimes.sdk.client import Client

F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType[float]):
    """A duration as Kubernetes writes it: `5s`, `2m30s`, `250ms`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns seconds."""
        from kruntimes.common.api.durations import seconds

        if isinstance(value, float):
            return value
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(f"{error}; write it as 5s, 2m30s or 250ms", param, ctx)


def run_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of Runs for the shell's completion; none where the API server cannot be asked."""
    import json

    from kruntimes.sdk import wire
    from kruntimes.sdk.errors import SdkError

    given = ctx.params
    target = Target(given.get("namespace"), given.get("kubeconfig"), given.get("context"))
    try:
        with target.client() as client:
            found = json.loads(client.request("GET", wire.runs_path(client.access.namespace)))["items"]
    except SdkError:
        return []
    return sorted(run["metadata"]["name"] for run in found if run["metadata"]["name"].startswith(incomplete))


def connection(command: F) -> F:
    """Adds -n, --kubeconfig and --context; the command gets them as one `Target`."""

    @click.option("-n", "--namespace", help="Namespace. [default: the context's]")
    @click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help="[default: as kubectl]")
    @click.option("--context", help="Context of the kubeconfig.")
    @functools.wraps(command)
    def wrapped(*args: Any, namespace: str | None, kubeconfig: Path | None, context: str | None, **kwargs: Any) -> Any:
        return command(*args, target=Target(namespace, kubeconfig, context), **kwargs)

    return wrapped  # type: ignore[return-value]


class Target:
    """Which API server and which namespace the command line names."""

    def __init__(self, namespace: str | None, kubeconfig: Path | None, context: str | None) -> None:
        self._namespace = namespace
        self._kubeconfig = kubeconfig
        self._context = context

    def client(self) -> "Client":
        """A client for it; KRT_TOKEN is the token that functions are called with. Raises ConfigError."""
        import dataclasses

        from kruntimes.sdk import kubeconfig
        from kruntimes.sdk.client import Client

        access = kubeconfig.load(self._kubeconfig, context=self._context)
        if self._namespace:
            access = dataclasses.replace(access, namespace=self._namespace)
        return Client(access, token=os.environ.get("KRT_TOKEN") or None)
