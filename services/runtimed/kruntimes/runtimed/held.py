"""What this runtimed holds of each Run: mutable, and the only such state (everything else is decided from it)."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kruntimes.common.api.epoch import Epoch
from kruntimes.pb import executor_v1_pb2 as pb
from kruntimes.runtimed.observed import Ending, Execution, Function, FunctionState, Local, Stage


@dataclass(slots=True, kw_only=True)
class Held:
    """One epoch in this Pod; the fields of `Local`, and what the effects need beside them.

    key: `namespace/name`. is_task: it is executed, not registered. request: what RegisterFunction is asked, the same
    for every repeat. sent: it was sent at least once, so that the server may know the function or task. linked: the
    server takes its calls on the functions socket. warning: of the registration, for the user, mostly empty. task: the
    registration or execution under way.
    """

    key: str
    epoch: Epoch
    since: float
    is_task: bool = False
    stage: Stage = Stage.NEW
    open: bool = True
    closed_at: float | None = None
    cancelled_at: float | None = None
    last_activity: float = 0.0
    function: Function | None = None
    execution: Execution | None = None
    ending: Ending | None = None
    working_dir: Path | None = None
    request: pb.RegisterFunctionRequest | None = None
    registration_id: str = ""
    linked: bool = False
    warning: str = ""
    sent: bool = False
    task: asyncio.Task[None] | None = None

    def view(self, *, in_flight: int) -> Local:
        """The frozen value that is decided on."""
        return Local(
            epoch=self.epoch,
            stage=self.stage,
            since=self.since,
            open=self.open,
            in_flight=in_flight,
            closed_at=self.closed_at,
            cancelled_at=self.cancelled_at,
            last_activity=self.last_activity,
            function=self.function,
            execution=self.execution,
            ending=self.ending,
        )

    @property
    def serving(self) -> bool:
        """Whether an invocation may be let in, as far as this epoch is concerned."""
        ready = self.function is not None and self.function.state is FunctionState.READY
        return self.open and self.stage is Stage.REGISTERED and ready


@dataclass(slots=True)
class Registry:
    """Every epoch held, by Run UID. empty: set while there is none."""

    by_uid: dict[str, Held] = field(default_factory=dict)
    empty: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.empty.set()

    def __iter__(self) -> Iterator[Held]:
        return iter(tuple(self.by_uid.values()))

    def __len__(self) -> int:
        return len(self.by_uid)

    def get(self, uid: str) -> Held | None:
        """What is held of the Run *uid*, or None."""
        return self.by_uid.get(uid)

    def named(self, key: str) -> list[Held]:
        """What is held of any Run that had the name *key*; a name may have been given anew to another UID."""
        return [held for held in self.by_uid.values() if held.key == key]

    def put(self, held: Held) -> None:
        """Holds *held*."""
        self.by_uid[held.epoch.run_uid] = held
        self.empty.clear()

    def drop(self, held: Held) -> None:
        """Forgets *held*, unless another epoch has taken its place."""
        if self.by_uid.get(held.epoch.run_uid) is held:
            del self.by_uid[held.epoch.run_uid]
        if not self.by_uid:
            self.empty.set()
