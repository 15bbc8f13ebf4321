"""A function that is going: whoever asks about it while its scratch folder is removed gets an answer."""

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

from kruntimes.common import metrics as common_metrics
from kruntimes.runtime.activity import Activity, Clock
from kruntimes.runtime.manager import Limits, Manager
from kruntimes.runtime.metrics import Metrics
from kruntimes.runtime.registry import Registration, Wanted
from kruntimes.runtime.scratch import Scratch


class SlowScratch(Scratch):
    """Removes a folder only when it is let."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.begun, self.let = threading.Event(), threading.Event()

    def discard(self, name: str) -> None:
        self.begun.set()
        assert self.let.wait(30)
        super().discard(name)


class Ended:
    """A function whose processes have ended already."""

    activity = Clock(7)

    def interrupt(self) -> None:
        """Nothing runs."""

    async def close(self) -> None:
        """Nothing is left."""


async def test_status_and_idle_clocks_are_served_while_a_folder_is_removed(tmp_path: Path) -> None:
    folders = SlowScratch(tmp_path)
    figures = Metrics(common_metrics.new_registry())
    async with asyncio.TaskGroup() as tasks:
        manager = Manager(cast(Any, None), tasks, folders, Activity(tmp_path), Limits(), figures)
        wanted = Wanted(run_uid="u", attempt=1, digest="d" * 64, handler="main.handler", working_dir="/w")
        registration = cast(Any, manager._registry.register(wanted, new_id="r1")).registration
        ended = cast(Any, Ended())
        manager._functions["r1"] = ended
        manager.calls.register("r1", ended)
        going = tasks.create_task(manager.unregister("u", "r1", cancel=True, drain=0.0))
        assert await asyncio.to_thread(folders.begun.wait, 30)
        try:
            assert list(manager.last_activity().values()) == [7]
            found, told = cast(tuple[Registration, Any], manager.status("u", "r1"))
            assert (found.id, told.last_nanos) == (registration.id, 7)
        finally:
            folders.let.set()
        await going
        assert manager.last_activity() == {}
        await manager.calls.stop()
