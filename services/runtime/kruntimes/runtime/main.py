"""Wiring of the Runtime Server: the nursery first, then everything that needs gRPC (design §7).

    python -m kruntimes.runtime --host python|bash [--init-seconds N]

Listens on KRUNTIMES_EXECUTOR_SOCKET for gRPC, on KRUNTIMES_FUNCTIONS_SOCKET, where that is set, for runtimed's calls,
and with metrics and health on port 9092 of KRUNTIMES_BIND_ADDRESS.
"""

import argparse
import asyncio
import importlib
import logging
import socket
from typing import TYPE_CHECKING, NoReturn

from kruntimes.common.api.names import RUNTIME_METRICS_PORT
from kruntimes.common.api.settings import Settings
from kruntimes.runtime.hosts import Nursery, start_nursery
from kruntimes.runtime.proc import limits

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)

INIT_SECONDS = 30.0
"""Imports of large libraries take seconds; what takes longer than this does not end, or belongs into a task."""
PROCESSES = 512
"""For one function or task; the kubelet's limit for a whole Pod is often 1,024, and a fork bomb must not reach it."""
OPEN_FILES = 4096
"""For each process: more than a handler needs, and so few that a leak is noticed by the handler that has it."""
MIN_OPEN_FILES = 256
"""A host keeps its own link at a high descriptor."""


class NurseryEnded(Exception):
    """The nursery was killed: nothing can be started any more, so the Runtime Server has to be started anew."""


def main(arguments: list[str]) -> NoReturn:
    """Forks the nursery, then loads gRPC and serves. Exit status as in `kruntimes.common.service.main`."""
    parser = argparse.ArgumentParser(prog="python -m kruntimes.runtime", description="The kruntimes Runtime Server.")
    parser.add_argument("--host", choices=("python", "bash"), default="python", help="the language of the functions")
    parser.add_argument("--init-seconds", type=float, default=INIT_SECONDS, help="limit for importing or sourcing")
    parser.add_argument("--metrics-port", type=int, default=RUNTIME_METRICS_PORT, help="0 takes any free one")
    parser.add_argument(
        "--memory-mib", type=int, default=limits.container_share() >> 20,
        help="what the processes of a function or task may hold together; 0: no limit; default: 4/5 of the container's",
    )  # fmt: skip
    parser.add_argument("--processes", type=int, default=PROCESSES, help="how many these may be; 0 for no limit")
    parser.add_argument("--open-files", type=int, default=OPEN_FILES, help="for each of them; 0 for the container's")
    parser.add_argument("--address-space-mib", type=int, default=0, help="for each of them; 0 for no limit")
    parser.add_argument("--calls", type=int, default=0, help="after which a warm process is replaced; 0 for never")
    parser.add_argument(
        "--recycle-mib",
        type=int,
        default=0,
        help="a warm process that holds more is replaced; 0 for never",
    )
    options = parser.parse_args(arguments)
    if 0 < options.open_files < MIN_OPEN_FILES:
        parser.error(f"--open-files must be 0 or at least {MIN_OPEN_FILES}")
    control = start_nursery()

    async def run(settings: Settings) -> None:
        await serve(settings, control, options)

    from kruntimes.common import service

    service.main("runtime", run)


async def serve(settings: Settings, control: socket.socket, options: argparse.Namespace) -> None:
    """Serves until cancelled; then running calls are drained, and every process of a function is ended."""
    # gRPC must not be loaded before the nursery was forked.
    from prometheus_client import CollectorRegistry, ProcessCollector

    from kruntimes.functions.metrics import PrometheusCollector
    from kruntimes.runtime.activity import Activity
    from kruntimes.runtime.calls import listening
    from kruntimes.runtime.manager import Limits, Manager
    from kruntimes.runtime.metrics import Metrics
    from kruntimes.runtime.scratch import Scratch
    from kruntimes.runtime.server import serving
    from kruntimes.runtime.tasks import Tasks

    path = settings.require("executor_socket").executor_socket
    assert path is not None
    times = Limits(
        init=options.init_seconds,
        default=settings.default_timeout,
        maximum=settings.max_timeout,
        calls=options.calls,
        recycle_bytes=options.recycle_mib << 20,
    )
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    metrics = Metrics(registry)
    lost = asyncio.Event()
    folders = Scratch(settings.state_dir)
    bounds = limits.HostLimits(
        memory=options.memory_mib << 20, processes=options.processes, open_files=options.open_files,
        address_space=options.address_space_mib << 20,
    )  # fmt: skip
    nursery = Nursery(control, options.host, lost.set, bounds)
    try:
        async with asyncio.TaskGroup() as tasks:
            activity = Activity(settings.state_dir)
            manager = Manager(nursery, tasks, folders, activity, times, metrics)
            writing = tasks.create_task(activity.follow(manager.last_activity))
            programs = Tasks(nursery, tasks, folders, metrics)
            metrics.follow(lambda: manager.in_flight)
            registry.register(PrometheusCollector(lambda: manager.calls.stats))
            try:
                async with (
                    serving(
                        path,
                        manager,
                        programs,
                        kind=options.host,
                        limits=times,
                        healthy=lambda: not lost.is_set(),
                        runtimed_pid=settings.runtimed_pid,
                        on_stranger=metrics.stranger,
                        functions_socket=settings.functions_socket,
                    ),
                    listening(
                        settings.functions_socket,
                        manager,
                        runtimed_pid=settings.runtimed_pid,
                        on_stranger=metrics.stranger,
                    ),
                ):
                    log.info("runtime server ready", extra={"host": options.host})
                    await _observe(settings, registry, lost, options.metrics_port)
            finally:
                await asyncio.gather(manager.stop(), programs.stop())
                writing.cancel()
    finally:
        nursery.close()
        folders.close()


async def _observe(settings: Settings, registry: "CollectorRegistry", lost: asyncio.Event, port: int) -> None:
    """Serves metrics and health; raises NurseryEnded when that happens.

    The HTTP server is loaded once functions can be registered, and beside them: it takes as long as all the rest.
    """
    await asyncio.to_thread(importlib.import_module, "kruntimes.common.metrics")
    from kruntimes.common.metrics import Health, serve

    health = Health(live=lambda: not lost.is_set(), ready=lambda: not lost.is_set())
    runner = await serve(registry, health, settings.bind_address, port)
    try:
        await lost.wait()
        raise NurseryEnded("the nursery ended")
    finally:
        await runner.cleanup()
