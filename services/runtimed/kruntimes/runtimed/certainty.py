"""Asking the Runtime Server until its answer is certain: a lost reply is not a refusal (executor.v1, "Semantics").

Registrations and tasks differ in what they ask and in how they read a refusal; the repeats, the limit and what becomes
of `held` are the same and stand here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc

from kruntimes.common import clock
from kruntimes.common.api.reasons import Reason
from kruntimes.runtimed.decide import REGISTRATION_SECONDS
from kruntimes.runtimed.held import Held
from kruntimes.runtimed.observed import Ending, Stage
from kruntimes.runtimed.registration import RuntimeServer

log = logging.getLogger(__name__)

FIRST_REPEAT_SECONDS, LONGEST_REPEAT_SECONDS = 0.1, 1.0
"""Between two tries of an uncertain registration or execution."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Nothing is decided. text: why, for the last word. at_once: the way is free for another try now."""

    text: str
    at_once: bool = False


Read = Callable[[grpc.aio.AioRpcError, str], Awaitable[Ending | Uncertain]]


async def ask(
    held: Held,
    server: RuntimeServer,
    send: Callable[[float], Awaitable[Stage]],
    read: Read,
    *,
    what: str,
    bug: Reason,
    wake: Callable[[str], None],
) -> None:
    """Repeats *send*, which is given the seconds left, until it is certain, or too late; `held` then tells the outcome.

    read: what a failed try means, of which the text is given too. what: it is, for the log. bug: the reason of an
    attempt that a fault of ours ended. wake: is given the key of *held* at the end, however that came.
    """
    wait, text = FIRST_REPEAT_SECONDS, "it cannot be reached"
    stage, ending = Stage.PREPARED, None
    try:
        while (left := held.since + REGISTRATION_SECONDS - clock.monotonic()) > 0:
            if await server.ready(left):
                held.sent = True
                try:
                    stage = await send(left)
                    return
                except grpc.aio.AioRpcError as error:
                    found = await read(error, f"{error.code().name}: {error.details()}")
                if isinstance(found, Ending):
                    ending, held.sent = found, False
                    return
                text = found.text
                if found.at_once:
                    continue
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_REPEAT_SECONDS)
        limit = f"{REGISTRATION_SECONDS:.0f} s"
        ending = Ending(
            reason=Reason.RUNTIME_SERVER_FAILED,
            message=f"no answer of the Runtime Server within {limit}; the last: {text}",
        )
    except Exception as error:  # a bug of ours must end this attempt, not this process
        log.exception("%s failed", what, extra={"run_uid": held.epoch.run_uid})
        ending = Ending(reason=bug, message=type(error).__name__)
    finally:
        held.task, held.stage, held.ending = None, stage, held.ending or ending
        wake(held.key)
