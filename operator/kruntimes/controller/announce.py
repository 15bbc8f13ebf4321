"""Events for people, written aside: no decision waits for them, and a flood of them is cut off."""

import asyncio
from dataclasses import dataclass

from kruntimes.common.api.names import API_VERSION
from kruntimes.common.kube.events import ObjectRef, Recorder
from kruntimes.controller.views import ControlledRun

WAITING_EVENTS = 1000
"""Events that may wait to be written; beyond it they are dropped, as Kubernetes' own recorders do."""
WRITERS = 4


@dataclass(frozen=True, slots=True)
class _Event:
    ref: ObjectRef
    type: str
    reason: str
    message: str


class Announcer:
    """Takes events at once and writes them in `run`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: asyncio.Queue[_Event] = asyncio.Queue(WAITING_EVENTS)

    def say(self, ref: ObjectRef, *, reason: str, message: str, warning: bool = False) -> None:
        """Announces something about an object; reason is one CamelCase word."""
        if not self._waiting.full():
            self._waiting.put_nowait(_Event(ref, "Warning" if warning else "Normal", reason, message))

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write())

    async def _write(self) -> None:
        while True:
            event = await self._waiting.get()
            await self._recorder.event(event.ref, type=event.type, reason=event.reason, message=event.message)


def about(run: ControlledRun) -> ObjectRef:
    """A reference to a Run."""
    meta = run.metadata
    return ObjectRef(api_version=API_VERSION, kind="Run", namespace=meta.namespace, name=meta.name, uid=meta.uid)
