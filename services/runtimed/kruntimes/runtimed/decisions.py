"""What runtimed can do next about one Run: each decision names one effect, which may be repeated safely (design §5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason
from kruntimes.runtimed.observed import Ending, Moment


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now; look again after this many seconds, or (None) at the next event."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Write Running: startTime if there is none yet, attempt + 1, Backoff=False."""


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Hold the object before anything of it is registered; a refusal means that it is being deleted."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Hold this epoch as one that may be known to the Runtime Server: an earlier process of ours began it."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Prepare:
    """Materialise the source of this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Register:
    """Call RegisterFunction; an uncertain answer is repeated under the same attempt."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Write Ready=False/TaskRunning: from here on the attempt counts as one that may have run."""


@dataclass(frozen=True, slots=True)
class Execute:
    """Call Execute; an uncertain answer is repeated under the same id, which starts nothing anew."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Call FunctionStatus, or Status of a task."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write Ready with the endpoint, or the endpoint anew where its CA bundle has changed."""


@dataclass(frozen=True, slots=True)
class Reopen:
    """Write Running again, Ready=False/Registering, under the same attempt: the server forgot the function."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Write Ready=False/Draining, so that the router withdraws the route."""


@dataclass(frozen=True, slots=True)
class Close:
    """Let no further invocation in; remember *ending* where only we know why."""

    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class CancelInFlight:
    """Cancel every call of this Run that is under way, or the task itself."""


@dataclass(frozen=True, slots=True)
class Unregister:
    """Unregister, or stop and forget the task; clean the workspace of the epoch, release its slot."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the object go; always before Pending or a terminal phase is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The one write that ends the assignment. Pending clears it; backoff: condition Backoff becomes True.

    outputs: of a task that succeeded.
    """

    phase: Phase
    reason: Reason
    message: str = ""
    backoff: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what is held locally; nothing of it is left in the Pod."""


Decision = (
    Wait
    | Claim
    | AddFinalizer
    | Adopt
    | Prepare
    | Register
    | Begin
    | Execute
    | Poll
    | Publish
    | Reopen
    | Announce
    | Close
    | CancelInFlight
    | Unregister
    | RemoveFinalizer
    | Finish
    | Forget
)


def poll_every(interval: float, *, read_at: float, now: Moment, left: float | None) -> Wait | Poll:
    """Asks again once the last answer is *interval* seconds old; left: look earlier, when this many have passed."""
    due = read_at + interval - now.mono
    if due <= 0:
        return Poll()
    return Wait(due if left is None else min(due, left))
