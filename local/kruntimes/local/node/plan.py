"""What the node does next with a Pod: desired state and what runs in, actions out (design §10).

The rules, first match wins:

1. A Pod that is over (deleting, lost, or completed) stops its main containers; when none of them runs, its sidecars
   from the last to the first; a container that outlives its grace is killed; then a deleting or lost Pod is removed.
2. Nothing starts before the Pod's volumes stand.
3. Init containers start in order: the next one after the last has exited with 0 or, for a sidecar, is started
   (its startup probe has passed).
4. Main containers start together, after all of them.
5. A container that has ended is started again where its policy says so, after a back-off.

A Pod that a controller would replace is *lost* when one of its processes was killed from outside, or when a sidecar
whose PID another container was told has ended: design §10 says that a killed Pod process is a lost Pod.

Times are monotonic seconds. `decide` reads no clock and does nothing; each action may be carried out again safely.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
STABLE_SECONDS = 60.0
"""A container that ran this long starts its back-off anew."""


class Kind(Enum):
    """The part that a container plays in its Pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


class Restart(Enum):
    """When a container that has ended is started again."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A container, as far as the plan depends on it. known_by_pid: another container was told its PID."""

    name: str
    kind: Kind
    restart: Restart
    known_by_pid: bool = False


class Stage(Enum):
    """Where a container is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What is known of one container.

    since: when the stage began. started and ready: what its probes say. code, signal: how it last ended (signal 0:
    by itself). asked: it was told to stop. failures: consecutive ends that count for the back-off.
    """

    stage: Stage = Stage.WAITING
    since: float = 0.0
    started: bool = False
    ready: bool = False
    code: int = 0
    signal: int = 0
    asked: bool = False
    failures: int = 0
    restarts: int = 0
    pid: int = 0

    def running(self, *, pid: int, now: float) -> "Life":
        """The life after a successful start."""
        again = self.restarts + (1 if self.stage is Stage.ENDED else 0)
        return replace(
            self, stage=Stage.RUNNING, since=now, started=False, ready=False, asked=False, restarts=again, pid=pid
        )

    def probed(self, *, started: bool, ready: bool) -> "Life":
        """The life after its probes have spoken."""
        return replace(self, started=started, ready=ready)

    def stopping(self, *, now: float) -> "Life":
        """The life after it was asked to stop."""
        return replace(self, stage=Stage.STOPPING, since=now, ready=False, asked=True)

    def ended(self, *, code: int, signal: int, now: float) -> "Life":
        """The life after it has ended."""
        stable = self.stage is Stage.RUNNING and now - self.since >= STABLE_SECONDS
        return replace(
            self, stage=Stage.ENDED, since=now, started=False, ready=False, code=code, signal=signal,
            failures=1 if stable else self.failures + 1, pid=0,
        )  # fmt: skip

    @property
    def up(self) -> bool:
        """Whether a process exists."""
        return self.stage in (Stage.RUNNING, Stage.STOPPING)

    @property
    def killed(self) -> bool:
        """Whether it was ended from outside: by a signal that nobody here sent."""
        return self.stage is Stage.ENDED and self.signal != 0 and not self.asked


class Ending(Enum):
    """Why a Pod is over."""

    DELETING = "Deleting"
    LOST = "Lost"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A Pod as it is: parts in the order of its specification (init containers first)."""

    parts: Sequence[Part]
    lives: Mapping[str, Life]
    deleting: bool
    controlled: bool
    prepared: bool
    grace: float


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the Pod's volumes."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container."""

    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask a container to stop: its preStop, then SIGTERM; *grace* seconds are left for both."""

    name: str
    grace: float


@dataclass(frozen=True, slots=True)
class Kill:
    """End a container and all that it started, at once."""

    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Nothing of the Pod runs any more: delete the object for good, and the Pod's folder."""

    ending: Ending


Action = Prepare | Start | Stop | Kill | Remove


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and when at the latest to ask again (None: when something changes)."""

    actions: tuple[Action, ...] = ()
    wake: float | None = None


def backoff(failures: int) -> float:
    """Seconds between the n-th consecutive end of a container and its next start."""
    if failures < 1:
        return 0.0
    return float(min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 16)))


def ending(observed: Observed) -> Ending | None:
    """Why the Pod is over, or None while it is to run."""
    if observed.deleting:
        return Ending.DELETING
    lives = observed.lives
    if observed.controlled and any(
        lives[p.name].killed or (p.known_by_pid and lives[p.name].stage is Stage.ENDED) for p in observed.parts
    ):
        return Ending.LOST
    failed = [p for p in observed.parts if p.kind is Kind.INIT and _finally_failed(p, lives[p.name])]
    mains = [p for p in observed.parts if p.kind is Kind.MAIN]
    if failed:
        return Ending.FAILED
    if mains and all(lives[p.name].stage is Stage.ENDED and not _again(p, lives[p.name]) for p in mains):
        return Ending.SUCCEEDED if all(lives[p.name].code == 0 for p in mains) else Ending.FAILED
    return None


def decide(observed: Observed, *, now: float) -> Plan:
    """Returns what to do with the Pod now."""
    over = ending(observed)
    if over is not None:
        return _wind_down(observed, over, now=now)
    if not observed.prepared:
        return Plan((Prepare(),))
    actions: list[Action] = []
    wakes: list[float] = []
    held = False
    for part in observed.parts:
        life = observed.lives[part.name]
        action: Action | None = None
        due = life.since
        if life.stage is Stage.STOPPING:
            action, due = Kill(part.name), life.since + observed.grace
        elif held:
            pass
        elif life.stage is Stage.WAITING:
            action = Start(part.name)
        elif life.stage is Stage.ENDED and _again(part, life):
            action, due = Start(part.name), life.since + backoff(life.failures)
        if action is not None and now >= due:
            actions.append(action)
        elif action is not None:
            wakes.append(due)
        held = held or (part.kind is not Kind.MAIN and not _passed(part, life))
    return Plan(tuple(actions), min(wakes, default=None))


def _wind_down(observed: Observed, over: Ending, *, now: float) -> Plan:
    """Rule 1."""
    actions: list[Action] = []
    wakes: list[float] = []

    def stop(part: Part) -> None:
        life = observed.lives[part.name]
        if life.stage is Stage.RUNNING:
            actions.append(Stop(part.name, observed.grace))
        elif now >= life.since + observed.grace:
            actions.append(Kill(part.name))
        else:
            wakes.append(life.since + observed.grace)

    up = [p for p in observed.parts if observed.lives[p.name].up]
    first = [p for p in up if p.kind is not Kind.SIDECAR]
    for part in first:
        stop(part)
    if not first and up:
        stop(up[-1])
    if not up and over in (Ending.DELETING, Ending.LOST):
        actions.append(Remove(over))
    return Plan(tuple(actions), min(wakes, default=None))


def _passed(part: Part, life: Life) -> bool:
    """Whether the init containers after this one may start."""
    if part.kind is Kind.SIDECAR:
        return life.stage is Stage.RUNNING and life.started
    return life.stage is Stage.ENDED and life.code == 0


def _again(part: Part, life: Life) -> bool:
    """Whether a container that has ended is to be started again."""
    if part.kind is Kind.INIT:
        return life.code != 0 and part.restart is not Restart.NEVER
    return part.restart is Restart.ALWAYS or (part.restart is Restart.ON_FAILURE and life.code != 0)


def _finally_failed(part: Part, life: Life) -> bool:
    """Whether an init container has failed for good."""
    return life.stage is Stage.ENDED and life.code != 0 and not _again(part, life)
