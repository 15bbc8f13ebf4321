"""How a function gets a host: started empty, made the function's own by its first call, ended when idle (shell)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kruntimes.functions.wire.encode import encode_call
from kruntimes.functions.wire.events import Call, Mode, Progress, Result
from kruntimes.runtime import answers, bounds, scratch
from kruntimes.runtime.host.protocol import INITIALISE, Config, ErrorDocument, Meta
from kruntimes.runtime.hosts import Ended, HostProcess, Nursery
from kruntimes.runtime.ladder import Why
from kruntimes.runtime.logtail import LogTail
from kruntimes.runtime.stopper import Stopper

QUIT_SECONDS = 1.0
"""What an idle host gets for its `atexit` before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a function is. init_seconds: how long importing or sourcing may take."""

    run_uid: str
    registration: str
    attempt: int
    config: Config
    init_seconds: float


class Starter:
    """Starts hosts of the function *spec* in *nursery*."""

    def __init__(self, spec: Spec, nursery: Nursery) -> None:
        self._spec = spec
        self._nursery = nursery

    async def start(self, on_log: Callable[[bytes], None]) -> HostProcess | ErrorDocument:
        """An empty host, with an empty scratch folder; its output goes to *on_log*."""
        if self._spec.config.scratch:
            await asyncio.to_thread(scratch.empty, Path(self._spec.config.scratch))
        try:
            return await self._nursery.start(on_log)
        except OSError as error:
            return ErrorDocument(reason="StartFailed", message=f"no process could be started: {error.strerror}")

    async def initialise(self, host: HostProcess, tail: LogTail) -> str | ErrorDocument:
        """Makes *host* the function's; its warning, mostly empty. Where it fails, nothing of the host is left.

        tail: what it prints.
        """
        stopper = Stopper(INITIALISE)
        stopper.begin(host)
        stopper.at(self._spec.init_seconds, Why.DEADLINE)
        call = Call(
            uid=INITIALISE, timeout=max(1, round(self._spec.init_seconds)), function=INITIALISE,
            content_type="application/json", payload=self._spec.config.encode(),
        )  # fmt: skip
        answered: asyncio.Future[Result | Ended] = asyncio.get_running_loop().create_future()

        def told(event: Result | Progress | Ended) -> None:
            if not isinstance(event, Progress) and not answered.done():
                answered.set_result(event)

        host.call(INITIALISE, encode_call(call, Mode.LINK), told)
        try:
            result = await answered
        finally:
            stopper.end()
        host.drain_log()
        if isinstance(result, Result) and result.code == answers.OK and stopper.why is None:
            return _warning_of(result)
        host.kill()
        ended = await host.ended
        if stopper.why is not None:
            message = f"initialising did not end within {self._spec.init_seconds:g} s"
            return ErrorDocument(reason="InitialisationTimeout", message=message)
        if isinstance(result, Ended):
            return ErrorDocument(
                reason="InitialisationFailed", message=f"the function's process {ended} while it was initialised",
                traceback=bounds.tail(tail.text(), bounds.MAX_TRACEBACK_BYTES),
            )  # fmt: skip
        try:
            return ErrorDocument.decode(result.body)
        except (ValueError, RecursionError):
            return ErrorDocument(reason="InitialisationFailed", message="the host's answer is not readable")


def _warning_of(result: Result) -> str:
    try:
        return bounds.head(Meta.decode(result.meta).warning, bounds.MAX_MESSAGE_BYTES)
    except (ValueError, RecursionError):
        return ""


async def retire(host: HostProcess) -> None:
    """Ends an idle host, in order if it goes along."""
    host.quit()
    await asyncio.wait({host.ended}, timeout=QUIT_SECONDS)
    host.kill()
