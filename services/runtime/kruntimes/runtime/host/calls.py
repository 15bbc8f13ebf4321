"""How an invocation reaches the handler's context (design §13)."""

from collections.abc import Callable

from kruntimes.common import clock
from kruntimes.functions.wire.events import Call
from kruntimes.functions.wire.invocations import invocation_id_of, type_of
from kruntimes.runtime.host.context import Context


def context_of(call: Call, *, attempt: int, report: Callable[[int, int], None]) -> Context:
    """The handler's view of *call*. report: where its progress goes."""
    millis = int(call.option("timeout_ms") or 0)
    return Context(
        invocation_id=invocation_id_of(call),
        attempt=attempt,
        content_type=type_of(call),
        deadline=clock.monotonic() + millis / 1000,
        report=report,
    )
