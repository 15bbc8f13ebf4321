"""Who runs next (second source document, "Keyed scheduler + worker pool"). Pure: no clock, no handler.

Each key has a lane. A lane is held by one call, from its start until it has answered *and* its work has ended;
the others of that key wait in their order. Lanes with work to do take turns, one call each, so a key that floods
holds back nobody but itself. A lane exists once whatever its key does: in `_ready` exactly while it is free and
has somebody waiting.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class _Lane(Generic[T]):
    __slots__ = ("forgotten", "key", "owner", "ready", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.owner: str | None = None
        self.waiting: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.ready = False
        self.forgotten = False


class Scheduler(Generic[T]):
    """Lanes and workers. weight: of a waiting item, in bytes, for whoever bounds what waits."""

    def __init__(self, *, workers: int) -> None:
        self._workers = workers
        self._lanes: dict[str, _Lane[T]] = {}
        self._ready: deque[_Lane[T]] = deque()
        self.running = 0
        self.waiting = 0
        self.waiting_weight = 0

    def free(self, key: str) -> bool:
        """Whether a call of *key* could start at once."""
        lane = self._lanes.get(key)
        return self.running < self._workers and (lane is None or (lane.owner is None and not lane.waiting))

    def start(self, key: str, uid: str) -> bool:
        """Takes a worker and the lane of *key* for *uid*, where that is possible at once."""
        if self.running >= self._workers or self._ready:
            return False
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        elif lane.owner is not None or lane.waiting:
            return False
        lane.owner = uid
        self.running += 1
        return True

    def wait(self, key: str, uid: str, item: T, weight: int = 0) -> None:
        """Puts *item* behind the others of its key."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        lane.waiting[uid] = item, weight
        self.waiting += 1
        self.waiting_weight += weight
        if lane.owner is None:
            self._make_ready(lane)

    def next(self) -> T | None:
        """Takes a worker and a lane for whoever is next, or None where nobody can start."""
        while self._ready and self.running < self._workers:
            lane = self._ready.popleft()
            lane.ready = False
            if not lane.waiting:
                self._drop_idle(lane)
                continue
            uid, (item, weight) = lane.waiting.popitem(last=False)
            self.waiting -= 1
            self.waiting_weight -= weight
            lane.owner = uid
            self.running += 1
            return item
        return None

    def withdraw(self, key: str, uid: str) -> bool:
        """Takes a waiting call out; False where it does not wait."""
        lane = self._lanes.get(key)
        if lane is None or (found := lane.waiting.pop(uid, None)) is None:
            return False
        self.waiting -= 1
        self.waiting_weight -= found[1]
        self._drop_idle(lane)
        return True

    def worker_freed(self) -> None:
        """A worker has nothing to do any more; the lane of its call may still be held."""
        assert self.running > 0, "more workers were freed than taken"
        self.running -= 1

    def release(self, key: str, uid: str) -> bool:
        """Opens the lane that *uid* holds to the next of its key; False where it holds none, and nothing changes."""
        lane = self._lanes.get(key)
        if lane is None or lane.owner != uid:
            return False
        lane.owner = None
        if lane.waiting:
            self._make_ready(lane)
        else:
            self._drop_idle(lane)
        return True

    def forget(self, key: str) -> None:
        """The key will not be used again; its lane goes once nobody holds it or waits in it."""
        if (lane := self._lanes.get(key)) is not None:
            lane.forgotten = True
            self._drop_idle(lane)

    def keep(self, key: str) -> None:
        """The key is used again after all."""
        if (lane := self._lanes.get(key)) is not None:
            lane.forgotten = False

    def occupied(self, key: str) -> bool:
        """Whether somebody holds the lane of *key*, or waits in it."""
        lane = self._lanes.get(key)
        return lane is not None and (lane.owner is not None or bool(lane.waiting))

    @property
    def lanes(self) -> int:
        """How many lanes exist."""
        return len(self._lanes)

    def _make_ready(self, lane: _Lane[T]) -> None:
        if not lane.ready:
            lane.ready = True
            self._ready.append(lane)

    def _drop_idle(self, lane: _Lane[T]) -> None:
        if lane.forgotten and lane.owner is None and not lane.waiting and not lane.ready:
            del self._lanes[lane.key]
