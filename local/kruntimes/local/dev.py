"""`krt dev`: one command that is a whole kruntimes on this machine (design §10). The wire: settings, order, signals."""

import asyncio
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kruntimes.common import clock, logs
from kruntimes.common.api.names import GATEWAY_PORT
from kruntimes.common.api.settings import SettingsError
from kruntimes.common.errors import KruntimesError, Terminal
from kruntimes.common.kube.errors import ApiError
from kruntimes.common.kube.transport import Kube
from kruntimes.local import control_plane, install, machine, project
from kruntimes.local.control_plane import ControlPlane
from kruntimes.local.instance import Instance, parents
from kruntimes.local.manifests import Installation
from kruntimes.local.node import claim
from kruntimes.local.node.context import Context
from kruntimes.local.node.logs import LogServer, client_ca
from kruntimes.local.node.node import Node
from kruntimes.local.node.probes import Prober
from kruntimes.local.screen import ORDINARY, ROOT
from kruntimes.local.stack import Stack
from kruntimes.local.sweep import sweep

T = TypeVar("T")
log = logging.getLogger(__name__)

NODE = "krt-dev"
START_SECONDS = 120.0
"""Eight seconds on two idle cores; a machine that needs longer than this has another trouble."""
STOP_GRACE_SECONDS = 3.0
STOP_SECONDS = 8.0
"""Ctrl-C is answered within ten seconds: what has not ended by then is killed."""
TIDY_SECONDS = 1.5
COMMAND_GRACE_SECONDS = 5.0
KEPT = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV"})
"""What the control plane gets of our environment: none of what may be secret."""
TETHER = Path(__file__).parent / "node" / "tether.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line.

    control_plane: a kubeconfig of a real one, in place of our own. logs: where to keep logs; by default they go with
    the instance.
    """

    control_plane: Path | None = None
    path: Path | None = None
    command: tuple[str, ...] = ()
    logs: Path | None = None
    log_level: str = "INFO"


def main(options: Options) -> int:
    """Runs `krt dev` and returns its exit status: the command's, 0 after Ctrl-C, 1 where it could not start."""
    if options.command and (status := unusable(options.command[0])):
        return status
    try:
        given = project.read(options.path) if options.path is not None else project.Project(())
        return asyncio.run(_main(options, given))
    except (KruntimesError, SettingsError) as error:
        say(str(error))
    except BaseExceptionGroup as group:
        known = group.subgroup((KruntimesError, SettingsError))
        if known is None:
            raise
        say(str(first(known)))
    return 1


def unusable(program: str) -> int:
    """0 where *program* can be executed; else 127 or 126 as shells say it, before anything was started for it."""
    if shutil.which(program) is not None:
        return 0
    there = os.sep in program and os.path.exists(program)
    say(f"{program}: {'it cannot be executed' if there else 'no such program'}")
    return 126 if there else 127


def first(error: BaseException) -> BaseException:
    """The first single error inside of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def say(text: str) -> None:
    """One line for the person who waits."""
    print(f"krt dev: {text}", file=sys.stderr, flush=True)  # noqa: T201


async def _main(options: Options, given: project.Project) -> int:
    began = clock.monotonic()
    stop = _signals()
    machine.check()
    say(ROOT if os.geteuid() == 0 else ORDINARY)
    places = parents()
    instance = Instance.open(draw=random.Random(), logs=options.logs)  # noqa: S311
    # The client library writes a kubeconfig's keys into temporary files, which a killed process cannot remove.
    tempfile.tempdir = str(instance.folder)
    try:
        _log_to(instance.logs / "krt-dev.log", options.log_level)
        for folder in await asyncio.to_thread(sweep, places):
            say(f"removed {folder}, which an instance that was killed had left")
        return await _live(options, given, instance, stop, began)
    except Exception as error:
        if not stop.asked.is_set():
            raise
        # Whoever asked for the end, at whatever moment, gets it: what was cut off then may fail in any way.
        log.warning("fault at the end", exc_info=error)
        return stop.status
    finally:
        await asyncio.to_thread(instance.close)


async def _live(options: Options, given: project.Project, instance: Instance, stop: "Stop", began: float) -> int:
    """From the control plane's start to its end."""
    plane = await _unless(stop, lambda: _plane(options, instance))
    if plane is None:
        return stop.status
    try:
        kube = await Kube.connect(kubeconfig=plane.kubeconfig)
        prober = Prober()
        try:
            await _unless(stop, lambda: control_plane.check(kube))
            if stop.asked.is_set():
                return stop.status
            await claim.claim(kube, name=NODE)
            try:
                return await _serve(options, given, instance, plane, kube, prober, stop, began)
            finally:
                await claim.release(kube, name=NODE)
        finally:
            await prober.close()
            await kube.close()
    finally:
        await plane.close()


async def _plane(options: Options, instance: Instance) -> ControlPlane:
    """The control plane that was named, or one of our own."""
    if options.control_plane is not None:
        return control_plane.existing(options.control_plane, folder=instance.folder)
    folder = instance.folder / "control-plane"
    folder.mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("LC_")}
    return await control_plane.embedded(
        instance.addresses.gateway, folder=folder, logs=instance.logs, hold=instance.hold, env=kept
    )


def _log_to(file: Path, level: str) -> None:
    """Sends our own log lines to *file*: the terminal belongs to the person and to COMMAND."""
    logs.configure(level, "krt-dev")
    try:
        handler = logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        raise Terminal(f"{file} cannot be written: {error.strerror}") from None
    handler.setFormatter(logs.JsonFormatter("krt-dev"))
    logging.getLogger().handlers[:] = [handler]


async def _serve(
    options: Options,
    given: project.Project,
    instance: Instance,
    plane: ControlPlane,
    kube: Kube,
    prober: Prober,
    stop: "Stop",
    began: float,
) -> int:
    context = Context(
        name=NODE, kube=kube, access=plane.access, addresses=instance.addresses, prober=prober,
        folder=instance.folder, logs=instance.logs, hold=instance.hold,
        path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    )  # fmt: skip
    log_server = LogServer(kube, node=NODE, logs=instance.logs)
    ca = await client_ca(kube)
    log_port = await log_server.start(folder=instance.folder, client_ca=ca) if ca is not None else None
    node = Node(context, log_port=log_port)
    stack = Stack(
        kube=kube, node=node, instance=instance, plane=plane, project=given, say=say, began=began,
        installation=_installation(instance, options),
    )  # fmt: skip
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(node.run()),
            group.create_task(claim.renew(kube, name=NODE)),
            group.create_task(plane.ended()),
            group.create_task(instance.guard.keep(say)),
        ]
        attending: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(START_SECONDS):
                started = await _unless(stop, stack.start)
            if started is None:
                return stop.status
            beside = (stack.keep_token(), stack.follow(), stack.tell_losses(), stack.keep_services())
            attending += [group.create_task(service) for service in beside]
            if not options.command:
                print(stack.screen(), flush=True)  # noqa: T201
                await stop.asked.wait()
                return stop.status
            return await _command(options.command, stack.environment(), stop)
        except TimeoutError:
            raise Terminal(f"not ready after {START_SECONDS:.0f} s; {stack.diagnosis()}") from None
        finally:
            for task in attending:
                task.cancel()
            say("stopping")
            await node.stop(grace=STOP_GRACE_SECONDS, limit=STOP_SECONDS)
            await log_server.close()
            await _tidy(kube)
            for task in running:
                task.cancel()


async def _tidy(kube: Kube) -> None:
    """Takes away what would wait for a node that is gone; what cannot be told now is done by the next start."""
    try:
        async with asyncio.timeout(TIDY_SECONDS):
            await install.clear(kube)
    except (TimeoutError, ApiError) as error:
        log.warning("control plane not tidied", extra={"error": str(error)})


def _installation(instance: Instance, options: Options) -> Installation:
    folder = instance.folder / "gateway"
    folder.mkdir(mode=0o700)
    address, port = instance.addresses.gateway, GATEWAY_PORT
    return Installation(
        address=address,
        port=port,
        router_address=instance.addresses.router,
        url=f"https://{address}:{port}",
        names=("localhost", address),
        gateway_dir=folder,
        log_level=options.log_level,
    )


class Stop:
    """Whether somebody asked for the end, and what exit status that means."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.asked = asyncio.Event()
        self.status = 0
        self._heard = False
        self._loop = loop

    def ask(self, number: int) -> None:
        """The first signal ends in order; the second ends at once, and the guard does the rest.

        It comes between any two steps of the main thread, also after the loop's end.
        """
        if self._heard:
            os._exit(128 + number)
        self._heard = True
        self.status = 0 if number == signal.SIGINT else 128 + number
        if self._loop.is_closed():
            os._exit(self.status)
        self._loop.call_soon_threadsafe(self.asked.set)


def _signals() -> Stop:
    """Takes the signals over, to the very end of the process: the loop's own handlers end with the loop."""
    stop = Stop(asyncio.get_running_loop())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: stop.ask(number))
    return stop


async def _unless(stop: Stop, work: Callable[[], Awaitable[T]]) -> T | None:
    """Returns what *work* returns, or None as soon as the end is asked for; nothing of *work* runs on."""
    if stop.asked.is_set():
        return None
    working, asked = asyncio.ensure_future(work()), asyncio.ensure_future(stop.asked.wait())
    try:
        await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        asked.cancel()
        await asyncio.wait({working, asked})
    return None if working.cancelled() else working.result()


async def _command(command: tuple[str, ...], env: dict[str, str], stop: Stop) -> int:
    """Runs COMMAND in the foreground; returns its exit status, 128 + n where a signal ended it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(TETHER), *command, env={**os.environ, **env}
    )
    async with asyncio.TaskGroup() as group:
        ended, asked = group.create_task(process.wait()), group.create_task(stop.asked.wait())
        await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not ended.done():
            process.terminate()
            await asyncio.wait({ended}, timeout=COMMAND_GRACE_SECONDS)
            if not ended.done():
                process.kill()
    code = ended.result()
    return code if code >= 0 else 128 - code
