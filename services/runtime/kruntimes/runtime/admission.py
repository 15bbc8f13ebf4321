"""Calls of registered functions into the functions manager, from either way in (shell around `registry`, `requests`).

The manager decides on overlap, duplicates, deadlines, cancellation and the end; before it, here: whether the
registration is the current one and ready, and whether the call is within its bounds.
"""

import itertools
from collections.abc import Callable

from kruntimes.functions import failures, manager
from kruntimes.functions.bounds import Bounds, Overlap
from kruntimes.functions.engine import Admission
from kruntimes.functions.invocation import Sink
from kruntimes.functions.wire.events import Call
from kruntimes.functions.wire.invocations import invocation_id_of, type_of
from kruntimes.runtime import replies, requests
from kruntimes.runtime.registry import MAX_FUNCTIONS, Code, Refused, Registry, decide_invoke

WORKERS = 2 * MAX_FUNCTIONS
"""Each function has its own process, so nothing is shared that would bound them together: as many as can exist, for
the time in which one generation ends and the next has begun."""
LAST_RESORT_SECONDS = 20.0
"""Until a call is answered whose processes cannot be ended: SIGKILL comes 6 s after a cancellation, and is given up
10 s later, with which the host counts as ended and answers."""
TOMBSTONES = 65_536
"""Ids of answered calls; runtimed numbers its own, so that a repetition is a fault of a moment ago, if it is any."""


class Calls(manager.Manager):
    """The functions manager of a Runtime Server, behind the checks of *registry* and the bounds of an invocation.

    default, maximum: an invocation's deadline in seconds. on_refused: told of each call that overlapped another.
    """

    def __init__(self, registry: Registry, *, default: float, maximum: float, on_refused: Callable[[], None]) -> None:
        bounds = Bounds(
            workers=WORKERS, overlap=Overlap.REFUSE, default_timeout=default, max_timeout=maximum,
            cancel_grace=LAST_RESORT_SECONDS, deadline_grace=LAST_RESORT_SECONDS, tombstones=TOMBSTONES,
        )  # fmt: skip
        super().__init__(bounds, form=failures.for_link)
        self._registry = registry
        self._default, self._maximum = default, maximum
        self._on_refused = on_refused
        self._numbers = itertools.count(1)
        self._closed = False

    def own_id(self) -> str:
        """A transaction id for a call that comes without one."""
        return f"g-{next(self._numbers):x}"

    def close(self) -> None:
        """Admits no more calls."""
        self._closed = True
        super().close()

    def admit(self, call: Call, sink: Sink, *, timeout: float | None = None) -> Admission:
        """Takes a call of the functions socket; whatever is refused is answered there."""
        refused = (
            Refused(Code.INVALID_ARGUMENT, "InvalidInvocation", "timeout_ms is missing")
            if timeout is None
            else self.invoke(call, sink, invocation_id=invocation_id_of(call), millis=round(timeout * 1000))
        )
        if refused is None:
            return Admission.ADMITTED
        sink(replies.of_refusal(call.uid, refused))
        return Admission.ANSWERED

    def invoke(
        self, call: Call, sink: Sink, *, invocation_id: str, millis: int, run_uid: str | None = None
    ) -> Refused | None:
        """Takes *call*, or says why it is not taken; what the manager itself refuses is answered at *sink*.

        millis: until its deadline, 0 for the default. run_uid: where given, the registration must be that Run's.
        """
        seconds = requests.check_invocation(
            invocation_id=invocation_id, content_type=type_of(call), size=len(call.payload or b""),
            timeout_millis=millis, default=self._default, maximum=self._maximum,
        )  # fmt: skip
        if isinstance(seconds, Refused):
            return seconds
        name = call.function
        found = self._registry.named(name) if run_uid is None else self._registry.find(run_uid, name)
        if isinstance(found, Refused):
            return found
        if (refused := decide_invoke(found)) is not None:
            return refused
        if super().admit(call, sink, timeout=seconds) is Admission.ANSWERED and not self._closed:
            self._on_refused()
        return None
