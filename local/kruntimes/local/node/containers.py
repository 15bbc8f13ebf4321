"""The processes of one Pod: starts, asks, stops and kills them, and knows the life of each. Decides nothing.

`lives` is what the plan reads; `changed` is called after every change of it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from kruntimes.common import clock
from kruntimes.local.node.context import Context
from kruntimes.local.node.environment import CannotRun, Facts
from kruntimes.local.node.launch import Launch, prepare
from kruntimes.local.node.plan import Life, Stage
from kruntimes.local.node.pods import Container, Exec, HttpGet, Probe, TcpSocket
from kruntimes.local.node.process import Exit, Process, StartFailed
from kruntimes.local.node.volumes import Secret

log = logging.getLogger(__name__)

EAGER_SECONDS = 0.1
"""Until a probe first succeeds it is asked this often, whatever its period: a start is not to wait for it."""
LAST_WORD_SECONDS = 1.0
"""What preStop leaves of the grace for SIGTERM, at the least."""
CLOSE_SECONDS = 5.0
"""A killed tree is gone within milliseconds, unless the kernel holds a process."""
CANNOT_START = 128
"""The exit code of a container that could not be started, as runtimes of containers report it."""


class Containers:
    """The containers of one Pod, by name."""

    def __init__(
        self,
        context: Context,
        *,
        specs: Mapping[str, Container],
        folder: Path,
        logs: Path,
        changed: Callable[[], None],
    ) -> None:
        self.lives: dict[str, Life] = {name: Life() for name in specs}
        self.moments: dict[str, str] = {}
        self.troubles: dict[str, str] = {}
        self._context = context
        self._specs = specs
        self._folder = folder
        self._logs = logs
        self._changed = changed
        self._processes: dict[str, Process] = {}
        self._launches: dict[str, Launch] = {}

    def pid(self, name: str) -> int:
        """The PID of a running container's process, or 0."""
        return self.lives[name].pid if name in self.lives else 0

    async def start(
        self, name: str, group: asyncio.TaskGroup, *, facts: Facts, secrets: Mapping[str, Secret], runtimed: int
    ) -> None:
        """Starts a container; one that cannot be started has ended at once, and its trouble says why."""
        spec = self._specs[name]
        try:
            launch = prepare(
                spec, context=self._context, facts=facts, folder=self._folder, secrets=secrets, runtimed=runtimed
            )
            process = await Process.start(
                command=launch.command,
                env=launch.env,
                cwd=launch.cwd,
                log=self._logs / f"{name}.log",
                hold=self._context.hold,
            )
        except (CannotRun, StartFailed, TimeoutError, OSError) as error:
            self.troubles[name] = str(error) or "the process did not start in time"
            now = clock.monotonic()
            life = self.lives[name].running(pid=0, now=now).ended(code=CANNOT_START, signal=0, now=now)
            self._set(name, life)
            return
        self.troubles.pop(name, None)
        self._processes[name], self._launches[name] = process, launch
        self._set(name, self.lives[name].running(pid=process.pid, now=clock.monotonic()))
        group.create_task(self._watch(name, process, facts.pod_ip))

    def stop(self, name: str, group: asyncio.TaskGroup, *, facts: Facts, grace: float) -> None:
        """Begins to stop a container: preStop, then SIGTERM; the plan kills it when its grace has passed."""
        self._set(name, self.lives[name].stopping(now=clock.monotonic()))
        group.create_task(self._stop(name, self._processes[name], facts.pod_ip, grace))

    def kill(self, name: str) -> None:
        """Ends a container and all that it started, at once."""
        if name in self._processes:
            self._processes[name].kill()

    async def close(self) -> None:
        """Ends whatever still runs; only a Pod that is given up on has something left here."""
        for process in self._processes.values():
            process.kill()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                for process in self._processes.values():
                    await process.wait()
        except TimeoutError:
            log.warning("processes outlive a kill", extra={"folder": self._folder.name})

    def _set(self, name: str, life: Life) -> None:
        if life.stage is not self.lives[name].stage:
            self.moments[name] = clock.rfc3339(clock.utcnow())
        self.lives[name] = life
        self._changed()

    async def _watch(self, name: str, process: Process, ip: str) -> None:
        """Probes a process until it has ended, then writes down how."""
        async with asyncio.TaskGroup() as group:
            probing = group.create_task(self._probe(name, process, ip))
            ended: Exit = await process.wait()
            probing.cancel()
        self._processes.pop(name, None)
        life = self.lives[name].ended(code=ended.code, signal=ended.signal, now=clock.monotonic())
        self._set(name, life)
        extra = {"container": f"{self._folder.name}/{name}", "code": ended.code}
        log.log(logging.DEBUG if life.asked else logging.WARNING, "container ended", extra=extra)

    async def _stop(self, name: str, process: Process, ip: str, grace: float) -> None:
        hook = self._specs[name].lifecycle
        action = None if hook is None or hook.pre_stop is None else hook.pre_stop.http_get or hook.pre_stop.exec
        limit = grace - LAST_WORD_SECONDS
        if action is not None and limit > 0:
            await self._ask(name, action, ip, timeout=limit)
        process.terminate()

    async def _probe(self, name: str, process: Process, ip: str) -> None:
        """Keeps `started` and `ready` of one process current."""
        spec = self._specs[name]
        if spec.startup_probe is not None and not await self._first(name, spec.startup_probe, ip):
            self.troubles[name] = "the startup probe did not succeed in time"
            process.kill()
            return
        self._said(name, process, started=True, ready=spec.readiness_probe is None)
        probe = spec.readiness_probe
        if probe is None:
            return
        await self._first(name, probe, ip, forever=True)
        failures = 0
        while True:
            if failures == 0 or failures >= probe.failure_threshold:
                self._said(name, process, started=True, ready=failures == 0)
            await asyncio.sleep(probe.period_seconds)
            good = await self._ask(name, _action(probe), ip, timeout=probe.timeout_seconds)
            failures = 0 if good else failures + 1

    async def _first(self, name: str, probe: Probe, ip: str, *, forever: bool = False) -> bool:
        """Asks often until the probe succeeds; False when it has not within the time that its thresholds give."""
        allowed = probe.initial_delay_seconds + probe.period_seconds * probe.failure_threshold
        end = clock.monotonic() + allowed
        while forever or clock.monotonic() < end:
            if await self._ask(name, _action(probe), ip, timeout=probe.timeout_seconds):
                return True
            await asyncio.sleep(EAGER_SECONDS)
        return False

    def _said(self, name: str, process: Process, *, started: bool, ready: bool) -> None:
        """What the probes say of the process that runs now; one that was replaced or is stopping is not changed."""
        life = self.lives[name]
        if life.stage is Stage.RUNNING and life.pid == process.pid and (life.started, life.ready) != (started, ready):
            self._set(name, life.probed(started=started, ready=ready))

    async def _ask(self, name: str, action: HttpGet | TcpSocket | Exec, ip: str, *, timeout: float) -> bool:
        launch = self._launches[name]
        return await self._context.prober.ask(
            action, container=self._specs[name], ip=ip, env=launch.env, cwd=launch.cwd, timeout=timeout
        )


def _action(probe: Probe) -> HttpGet | TcpSocket | Exec:
    """What the probe does; the API server accepts only probes that do something."""
    action = probe.http_get or probe.tcp_socket or probe.exec
    assert action is not None
    return action
