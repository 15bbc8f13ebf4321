"""The start and the end of every service: settings, logs, event loop, signals, exit status."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

from kruntimes.common import logs
from kruntimes.common.api.settings import Settings, SettingsError
from kruntimes.common.protect import protect

log = logging.getLogger(__name__)

CLEAN_UP_SECONDS = 25.0
"""What a service may take to end after a signal; Kubernetes kills after 30 s unless a Pod says otherwise."""
COLLECT_AFTER = 10_000
"""Objects between two looks of the garbage collector at the youngest: a call makes a hundred, which end with it and in
no cycle. Python's own 700 has it look every few calls."""
EX_CONFIG = 78
"""sysexits.h: the configuration is wrong, so a restart will not help."""

Run = Callable[[Settings], Awaitable[None]]


def main(component: str, run: Run, *, clean_up_seconds: float = CLEAN_UP_SECONDS) -> NoReturn:
    """Reads the settings, runs *run* until it returns or a signal comes, and ends the process.

    Others of the same user cannot look into the process, since user code may be among them.
    SIGTERM and SIGINT cancel *run*, which then has *clean_up_seconds*; a second signal ends at once. Exit status:
    0 after a signal or a normal return, 78 for wrong settings (a sentence on standard error), 1 for anything else.
    """
    protect()
    try:
        settings = Settings.read(os.environ)
        logs.configure(settings.log_level, component)
    except ValueError as error:
        _refuse(component, error)
    # What was imported stays: no collection need walk through it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_supervise(run, settings, clean_up_seconds))
    except Exception as error:
        cause = _only(error)
        if isinstance(cause, SettingsError):
            _refuse(component, cause)
        log.critical("the service failed", exc_info=cause)
        sys.exit(1)
    sys.exit(0)


async def _supervise(run: Run, settings: Settings, clean_up_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            log.warning("a second signal, ending at once", extra={"signal": number.name})
            os._exit(1)
        log.info("stopping", extra={"signal": number.name})
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)

    async def serve() -> None:
        await run(settings)

    async with asyncio.TaskGroup() as group:
        service, stopping = group.create_task(serve()), group.create_task(stop.wait())
        await asyncio.wait({service, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if service.done():
            return
        service.cancel()
        await asyncio.wait({service}, timeout=clean_up_seconds)
        if not service.done():
            log.critical("clean-up did not end in time", extra={"seconds": clean_up_seconds})
            os._exit(1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: it serves small requests at half the cost."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _refuse(component: str, error: BaseException) -> NoReturn:
    print(f"{component}: {error}", file=sys.stderr)  # noqa: T201
    sys.exit(EX_CONFIG)


def _only(error: BaseException) -> BaseException:
    """What task groups have wrapped around a single error is taken off: a person needs the error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
