"""Registrations: generations of a function by attempt and digest, and who may act on which (executor.v1).

Pure: values in, decision out; `Registry` holds the current registration of each Run and applies decisions.

    same UID, attempt and digest     the same registration, nothing is initialised anew
    same UID and attempt, other digest   ALREADY_EXISTS
    higher attempt                   a new generation; the old id is stale from then on
    lower attempt                    FAILED_PRECONDITION, also after the newer one was unregistered
    stale id                         never invokes, changes or removes a newer registration
    unknown id                       NOT_FOUND; unregistering it succeeds
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import Enum

MAX_FUNCTIONS = 1000
"""Registrations at a time; far above any Pod's capacity, so only a fault reaches it."""
MAX_REMEMBERED = 10_000
"""Runs whose newest attempt is remembered after they left, so that a late, lower attempt is refused."""


class State(Enum):
    """As FunctionRegistrationState."""

    REGISTERING = "registering"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class Code(Enum):
    """The gRPC codes of refusals, by name, so that this module needs no gRPC."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What RegisterFunction asks for, already checked. working_dir is absolute; it is not part of the digest."""

    run_uid: str
    attempt: int
    digest: str
    handler: str
    working_dir: str
    env: tuple[tuple[str, str], ...] = ()
    idle_timeout: int = 0
    forked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One generation of one function. id: opaque. fatal_error: why it is FAILED. warning: of one that is READY."""

    id: str
    wanted: Wanted
    state: State = State.REGISTERING
    fatal_error: str = ""
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """code, machine-readable reason, and a sentence for a person."""

    code: Code
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Existing:
    """The request was answered before; nothing is to be done."""

    registration: Registration


@dataclass(frozen=True, slots=True)
class New:
    """A generation to initialise once *replaces*, if any, has ended."""

    registration: Registration
    replaces: Registration | None


def decide_register(
    current: Registration | None, newest_attempt: int, wanted: Wanted, *, new_id: str
) -> Existing | New | Refused:
    """What becomes of a RegisterFunction. newest_attempt: the highest ever seen for this Run, 0 for none."""
    if wanted.attempt < newest_attempt:
        return Refused(
            Code.FAILED_PRECONDITION, "StaleAttempt",
            f"attempt {wanted.attempt} is older than attempt {newest_attempt}, which was registered",
        )  # fmt: skip
    if current is None or wanted.attempt > current.wanted.attempt:
        return New(Registration(id=new_id, wanted=wanted), current)
    if wanted.digest != current.wanted.digest:
        return Refused(
            Code.ALREADY_EXISTS, "DigestMismatch",
            f"attempt {wanted.attempt} is registered with another digest",
        )  # fmt: skip
    if current.state is State.DRAINING:
        return Refused(Code.FAILED_PRECONDITION, "Draining", "the registration is being removed")
    return Existing(current)


def decide_find(current: Registration | None, registration_id: str) -> Registration | Refused:
    """Whether *registration_id* names the current registration of its Run."""
    if current is None:
        return Refused(Code.NOT_FOUND, "UnknownRegistration", "there is no such registration")
    if current.id != registration_id:
        return Refused(Code.FAILED_PRECONDITION, "StaleRegistration", "a newer registration has taken its place")
    return current


def decide_invoke(registration: Registration) -> Refused | None:
    """Why *registration* takes no invocation now, or None where it does."""
    match registration.state:
        case State.READY:
            return None
        case State.REGISTERING:
            return Refused(Code.FAILED_PRECONDITION, "Registering", "the function is still being initialised")
        case State.DRAINING:
            return Refused(Code.FAILED_PRECONDITION, "Draining", "the registration is being removed")
        case State.FAILED:
            first_line = registration.fatal_error.partition("\n")[0][:500]
            return Refused(Code.FAILED_PRECONDITION, "RegistrationFailed", first_line or "the function failed to start")


class Registry:
    """The current registration of each Run, and the newest attempt of Runs that left."""

    def __init__(self) -> None:
        self._current: dict[str, Registration] = {}
        self._uids: dict[str, str] = {}
        self._newest: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._current)

    def register(self, wanted: Wanted, *, new_id: str) -> Existing | New | Refused:
        """Decides, and makes a new generation the current one."""
        uid = wanted.run_uid
        decision = decide_register(self._current.get(uid), self._newest.get(uid, 0), wanted, new_id=new_id)
        if isinstance(decision, New):
            if decision.replaces is None and len(self._current) >= MAX_FUNCTIONS:
                return Refused(Code.RESOURCE_EXHAUSTED, "TooManyFunctions", f"{MAX_FUNCTIONS} functions are registered")
            self._current[uid] = decision.registration
            self._uids[new_id] = uid
            self._newest[uid] = wanted.attempt
            self._newest.move_to_end(uid)
            while len(self._newest) > MAX_REMEMBERED:
                self._newest.popitem(last=False)
        return decision

    def find(self, run_uid: str, registration_id: str) -> Registration | Refused:
        """The registration of that id, where it is the current one of its Run."""
        return decide_find(self._current.get(run_uid), registration_id)

    def current_id(self, run_uid: str) -> str:
        """The id of the Run's current registration; empty where there is none."""
        current = self._current.get(run_uid)
        return current.id if current is not None else ""

    def named(self, registration_id: str) -> Registration | Refused:
        """The registration of that id, whose Run the caller does not say, where it is the current one."""
        return self.find(self._uids.get(registration_id, ""), registration_id)

    def all(self) -> list[Registration]:
        """Every current registration."""
        return list(self._current.values())

    def move(self, registration: Registration, state: State, *, fatal_error: str = "", warning: str = "") -> None:
        """Notes a new state of *registration*; that of a stale one changes nothing, and DRAINING is never left."""
        current = self._current.get(registration.wanted.run_uid)
        if current is not None and current.id == registration.id and current.state is not State.DRAINING:
            self._current[registration.wanted.run_uid] = replace(
                current, state=state, fatal_error=fatal_error, warning=warning
            )

    def remove(self, registration: Registration) -> None:
        """Forgets *registration* itself; a newer one of the same Run stays."""
        self._uids.pop(registration.id, None)
        current = self._current.get(registration.wanted.run_uid)
        if current is not None and current.id == registration.id:
            del self._current[registration.wanted.run_uid]
