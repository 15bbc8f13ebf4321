"""`krt logs`: what a function printed, and what became of its invocations."""

import queue
import threading
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from kruntimes.cli.options import Target, connection, run_names

if TYPE_CHECKING:
    from kruntimes.cli.lines import Line
    from kruntimes.sdk.client import Client

CONTAINERS = ("runtime", "runtimed")
"""What a function prints is in the first one's log; claims, registrations and outcomes are in the second's."""
LOOK_SECONDS = 0.5
"""How often -f looks whether the Run has moved, was replaced, or has gone."""
QUEUED_LINES = 10_000
"""Read ahead of the terminal; beyond it the readers wait."""


@click.command()
@click.argument("name", shell_complete=run_names)
@click.option("--invocation", metavar="ID", help="Lines of this invocation only.")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come, until the Run ends or is deleted.")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="The last N lines. [default: all that are kept]")
@click.option("-o", "--output", type=click.Choice(["json"]), help="The JSON lines as the services wrote them.")
@connection
def command(
    target: Target, name: str, invocation: str | None, follow: bool, tail: int | None, output: str | None
) -> None:
    """Shows what the function of the Run NAME printed, and what became of each invocation.

    Lines that begin with -- are the platform's, all others the function's own output. Logs live with the Pod: those
    of a Pod that is gone are gone too. It takes the right to get pods/log.
    """
    from kruntimes.cli import lines, runs

    with target.client() as client:
        run = runs.find(client, name)
        if follow:
            found = _followed(client, name, run, invocation, tail)
        else:
            found = iter(_merged(_kept(client, run, pods_of(client, run), invocation), tail))
        for line in found:
            click.echo(line.raw if output else lines.text(line, zone=None))


def pods_of(client: "Client", run: dict[str, Any]) -> list[str]:
    """The Pods whose logs may tell of *run*: its own, or every one of its Runtime where it has none (any more)."""
    import json

    assigned = (run.get("status") or {}).get("assignedPod")
    if assigned:
        return [str(assigned)]
    path = f"/api/v1/namespaces/{run['metadata']['namespace']}/pods"
    found = json.loads(client.request("GET", path, query={"labelSelector": f"runtime={run['spec']['runtime']}"}))
    return [str(pod["metadata"]["name"]) for pod in found["items"]]


def read(
    client: "Client", run: dict[str, Any], pod: str, container: str, invocation: str | None, *, follow: bool
) -> "Iterator[Line]":
    """The lines of one container that are *run*'s; ends at once where the Pod is gone. Raises ApiError."""
    from kruntimes.cli import lines
    from kruntimes.sdk.errors import NotFoundError

    meta = run["metadata"]
    query = {"container": container} | ({"follow": "true"} if follow else {})
    try:
        for raw in client.lines(f"/api/v1/namespaces/{meta['namespace']}/pods/{pod}/log", query=query):
            line = lines.read(raw)
            if line is not None and lines.wanted(line, uid=meta["uid"], invocation=invocation):
                yield line
    except NotFoundError:
        return


Kept = dict[tuple[str, str], "list[Line]"]
"""By Pod and container."""


def _kept(client: "Client", run: dict[str, Any], pods: list[str], invocation: str | None) -> Kept:
    """What is kept now."""
    return {
        (pod, container): list(read(client, run, pod, container, invocation, follow=False))
        for pod in pods
        for container in CONTAINERS
    }


def _merged(kept: Kept, tail: int | None) -> "list[Line]":
    """In the order of time; the last *tail* lines where that is a number."""
    found = sorted((line for part in kept.values() for line in part), key=lambda line: line.time)
    return found if tail is None else found[-tail:]


def _followed(
    client: "Client", name: str, run: dict[str, Any], invocation: str | None, tail: int | None
) -> "Iterator[Line]":
    """What is kept and what comes, over a change of Pod and over the Run that `krt dev` puts in its place."""
    from kruntimes.cli import runs
    from kruntimes.common import clock
    from kruntimes.common.api.phases import TERMINAL
    from kruntimes.sdk.errors import NotFoundError

    came: queue.Queue[Line | Exception] = queue.Queue(QUEUED_LINES)
    reading: set[tuple[str, str]] = set()

    def pump(run: dict[str, Any], pod: str, container: str, skip: int) -> None:
        """Puts what comes after the first *skip* lines, which have been shown."""
        try:
            for line in islice(read(client, run, pod, container, invocation, follow=True), skip, None):
                came.put(line)
        except Exception as error:  # handed to the main thread, which raises it
            came.put(error)

    while True:
        status = run.get("status") or {}
        over = status.get("phase") in TERMINAL
        at = (run["metadata"]["uid"], status.get("assignedPod", ""))
        if at not in reading and (at[1] or (over and not reading)):
            reading.add(at)
            kept = _kept(client, run, pods_of(client, run), invocation)
            yield from _merged(kept, tail)
            for (pod, container), part in () if over else kept.items():
                threading.Thread(target=pump, args=(run, pod, container, len(part)), daemon=True).start()
        look = clock.monotonic() + LOOK_SECONDS
        while (left := look - clock.monotonic()) > 0:
            try:
                one = came.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(one, Exception):
                raise one
            yield one
        if over and came.empty():
            return
        try:
            run = runs.find(client, name)
        except NotFoundError:
            return
