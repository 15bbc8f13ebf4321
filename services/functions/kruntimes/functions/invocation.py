"""One admitted call, and the contract between the manager and what runs it. Pure: nothing here waits or calls out.

A handler is anything with `start`, `stop` and `kill`: `handlers` makes one of a plain or an `async` function, and
a host process is one by itself. Whatever it is, it owes the manager two things for each call that was started: at
most one answer (`finish`), and word that its work has ended (`end`), or both at once (`complete`).
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from kruntimes.functions import failures
from kruntimes.functions.failures import Failure
from kruntimes.functions.routes import Route
from kruntimes.functions.wire.events import Call, Progress, Result

Sink = Callable[[Result | Progress], None]
"""Where one call's progress and its one result go. Called on the manager's thread; it must neither wait nor raise."""


class State(Enum):
    """queued → running → awaiting_result → terminal; a queued or running call may become terminal directly."""

    QUEUED = auto()
    RUNNING = auto()
    AWAITING_RESULT = auto()
    TERMINAL = auto()


class Why(Enum):
    """Why work is told to stop."""

    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    STOPPING = "stopping"


class Handler(Protocol):
    """What runs calls. Each method returns at once; the manager's thread calls them."""

    def start(self, invocation: "Invocation") -> None:
        """Begins the call. What it raises is answered 500, and its work counts as ended."""

    def stop(self, invocation: "Invocation", why: Why) -> None:
        """Asks the work to end; its answer still counts for a while. May come again with another reason."""

    def kill(self, invocation: "Invocation") -> None:
        """The time is over and the call is answered: end the work by force, and say `end` when nothing is left."""


class Desk(Protocol):
    """The manager as an invocation sees it."""

    def finish(self, invocation: "Invocation", result: Result) -> bool:
        """See Invocation.finish."""

    def complete(self, invocation: "Invocation", result: Result) -> bool:
        """See Invocation.complete."""

    def fail(self, invocation: "Invocation", failure: Failure) -> bool:
        """See Invocation.fail."""

    def end(self, invocation: "Invocation") -> None:
        """See Invocation.end."""

    def report(self, invocation: "Invocation", progress: Progress) -> None:
        """See Invocation.progress."""


class Invocation:
    """An admitted call.

    For handlers: call, deadline (on the manager's clock), why (None until the work is told to stop), and the
    methods, which any thread may call. on_stop: called on the manager's thread with the reason, in every state.

    For the engine, and to be read only: admitted (when), timeout (seconds), state, cancel_requested, timed_out (no
    answer but a 504 counts any more), working (a handler was started and has not ended: the lane stays closed that
    long), reported and reported_at (the last progress).
    """

    __slots__ = (
        "_desk", "admitted", "call", "cancel_requested", "deadline", "on_stop", "reported", "reported_at", "route",
        "sink", "state", "timed_out", "timeout", "why", "working",
    )  # fmt: skip

    def __init__(
        self,
        desk: Desk,
        call: Call,
        route: Route[Handler],
        sink: Sink,
        *,
        admitted: float,
        timeout: float,
    ) -> None:
        self._desk = desk
        self.call = call
        self.route = route
        self.sink = sink
        self.admitted = admitted
        self.timeout = timeout
        self.deadline = admitted + timeout
        self.state = State.QUEUED
        self.why: Why | None = None
        self.cancel_requested = False
        self.timed_out = False
        self.working = False
        self.reported: Progress | None = None
        self.reported_at = float("-inf")
        self.on_stop: Callable[[Why], None] | None = None

    @property
    def uid(self) -> str:
        """The call's transaction id."""
        return self.call.uid

    @property
    def cancelled(self) -> bool:
        """Whether the work was told to stop, for whatever reason."""
        return self.why is not None

    def answer(
        self,
        body: bytes,
        *,
        code: int = 200,
        content_type: str = "application/json",
        expires: int = 0,
        meta: bytes = b"",
    ) -> Result:
        """A result of this call; expires: seconds since the epoch, 0 for now."""
        return Result(uid=self.call.uid, code=code, content_type=content_type, body=body, expires=expires, meta=meta)

    def finish(self, result: Result) -> bool:
        """Answers the call; True where this was its first answer. From another thread: whether it was handed over."""
        return self._desk.finish(self, result)

    def complete(self, result: Result) -> bool:
        """`finish` and `end` in one."""
        return self._desk.complete(self, result)

    def fail(self, failure: Failure = failures.PANIC) -> bool:
        """`complete`, with an answer in the manager's own form."""
        return self._desk.fail(self, failure)

    def end(self) -> None:
        """The work has ended. A call without an answer now awaits one; an answered one gives its lane free."""
        self._desk.end(self)

    def progress(self, done: int, total: int) -> None:
        """Tells how far the work is; both ≥0. What goes backwards or comes after the answer is dropped."""
        self._desk.report(self, Progress(uid=self.call.uid, done=done, total=total))
