"""Random interleavings of everything that can happen, against what must always hold.

Exactly one terminal output for each admitted id; one key never at work twice; no lane or worker lost; nothing
starts after the end; answers of one key in the order of their admission where nothing interferes.
"""

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.engine_world import Nothing, World

from kruntimes.functions.bounds import Overlap
from kruntimes.functions.engine import Admission
from kruntimes.functions.invocation import Invocation, State

KEYS = ("a", "b", "c")


class Manager(RuleBasedStateMachine):
    """The engine with a caller, handlers and a clock that do as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.admitted: list[str] = []
        self.owed: Counter[str] = Counter()

    @initialize(
        workers=st.integers(1, 3), overlap=st.sampled_from(Overlap), grace=st.sampled_from([0.0, 0.5]),
        tombstones=st.sampled_from([4, 1000]),
    )  # fmt: skip
    def begin(self, workers: int, overlap: Overlap, grace: float, tombstones: int) -> None:
        self.workers = workers
        self.world = World(
            ("a", "b"), workers=workers, overlap=overlap, deadline_grace=grace, tombstones=tombstones, queue_size=2,
            read_ahead_calls=4,
        )  # fmt: skip
        self.world.engine.register_prefix("p", "c", Nothing())

    @rule(key=st.sampled_from(KEYS), timeout=st.sampled_from([0, 1, 7, 600]), again=st.integers(0, 9))
    def call(self, key: str, timeout: int, again: int) -> None:
        """A new call; sometimes with an id that was used."""
        if again == 0 and self.admitted:
            uid = self.admitted[-1]
        else:
            self.number += 1
            uid = f"t{self.number}"
        known = self.world.engine.ledger.known(uid, self.world.now)
        answered = len(self.world.results.get(uid, []))
        admission = self.world.call(uid, "p" if key == "c" else key, key, timeout=timeout)
        assert (admission is Admission.DUPLICATE) is known
        self.owed[uid] += admission is not Admission.DUPLICATE
        if admission is Admission.ADMITTED:
            self.admitted.append(uid)
        elif admission is Admission.ANSWERED:
            assert len(self.world.results[uid]) == answered + 1
        else:
            assert len(self.world.results.get(uid, [])) == answered

    def pick(self, data: st.DataObject, *, working: bool) -> str | None:
        """The id of a call that was started: one at work, or any."""
        uids = [uid for uid, call in self.world.started.items() if call.working or not working]
        return data.draw(st.sampled_from(uids[-8:])) if uids else None

    @rule(data=st.data(), code=st.sampled_from([200, 500, 504]))
    def answer(self, data: st.DataObject, code: int) -> None:
        if (uid := self.pick(data, working=False)) is not None:
            first = self.world.started[uid].state is not State.TERMINAL
            assert self.world.answer(uid, code=code) is first

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if (uid := self.pick(data, working=True)) is not None:
            self.world.ended(uid)

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        if (uid := self.pick(data, working=True)) is not None:
            self.world.done(uid)

    @rule(data=st.data())
    def end_again(self, data: st.DataObject) -> None:
        if (uid := self.pick(data, working=False)) is not None and not self.world.started[uid].working:
            self.world.ended(uid)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.admitted:
            self.world.cancel(data.draw(st.sampled_from(self.admitted[-8:])))

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.0, 5.0, 31.0, 61.0]))
    def passes(self, seconds: float) -> None:
        self.world.passes(seconds)

    @rule(key=st.sampled_from(KEYS))
    def withdraw_and_return(self, key: str) -> None:
        engine = self.world.engine
        if key == "c":
            engine.unregister("p", "c")
            engine.register_prefix("p", "c", Nothing())
        else:
            engine.unregister(key)
            engine.register(key, Nothing())

    @precondition(lambda self: len(self.admitted) > 6)
    @rule(at_once=st.booleans())
    def stop(self, at_once: bool) -> None:
        self.world.engine.stop()
        if at_once:
            self.world.abandon()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            check(self.world, self.workers)

    def teardown(self) -> None:
        """Whatever has happened, everything comes to its end."""
        if hasattr(self, "world"):
            settle(self.world, self.workers, self.owed)


def check(world: World, workers: int) -> None:
    """What holds after every step."""
    engine = world.engine
    at_work = [call for call in world.at_work if call.working]
    assert engine.scheduler.running == len(at_work) <= workers
    keys = [call.route.key for call in at_work]
    assert len(keys) == len(set(keys)), "one key is at work twice"
    active = engine.ledger.active.values()
    assert all(call.state is not State.TERMINAL for call in active)
    queued = [call for call in active if call.state is State.QUEUED]
    assert engine.scheduler.waiting == len(queued)
    assert engine.ledger.awaiting == sum(call.state is State.AWAITING_RESULT for call in active)
    if queued and not engine._halted and engine.scheduler.running < workers:
        held = {call.route.key for call in (*at_work, *world.started.values()) if not over(call)}
        assert all(call.route.key in held for call in queued), "a worker and a lane are free, and somebody waits"


def over(call: Invocation) -> bool:
    """Whether nothing is owed and nothing runs any more."""
    return call.state is State.TERMINAL and not call.working


def settle(world: World, workers: int, owed: Counter[str]) -> None:
    """Ends all work, lets every deadline pass, and looks at what is left."""
    for _ in range(4):  # every deadline passes in the first; what that started ends in the next
        for call in list(world.at_work):
            world.end(call)
        world.passes(1000)
        check(world, workers)
    assert {uid: len(results) for uid, results in world.results.items()} == +owed, "not one answer for each call"
    assert not world.engine.ledger.active
    assert world.engine.drained
    if not world.engine.stopping:
        for key in KEYS:
            world.call(f"last-{key}", "p" if key == "c" else key, key)
            world.done(f"last-{key}")
            assert world.codes(f"last-{key}") == [200], "a lane was lost"


TestManager = Manager.TestCase
TestManager.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("seed", range(6))
def test_a_long_random_life(seed: int) -> None:
    """The same laws over long lives, in many more steps, and with a memory for few ids."""
    rng = random.Random(seed)
    workers = rng.randrange(1, 4)
    world = World(
        ("a", "b"), workers=workers, tombstones=16, deadline_grace=rng.choice([0.0, 0.5]),
        overlap=rng.choice(list(Overlap)),
    )  # fmt: skip
    world.engine.register_prefix("p", "c", Nothing())
    owed: Counter[str] = Counter()
    for number in range(800):
        uid, key = f"t{number}", rng.choice(KEYS)
        assert (
            world.call(uid, "p" if key == "c" else key, key, timeout=rng.choice([1, 5, 60])) is not Admission.DUPLICATE
        )
        owed[uid] = 1
        for _ in range(rng.randrange(5)):
            started = [uid for uid, call in world.started.items() if call.working]
            if started:
                rng.choice([world.done, world.ended, world.answer, world.cancel])(rng.choice(started))
        if rng.random() < 0.3:
            world.passes(rng.choice([0.1, 3.0]))
        if rng.random() < 0.1:
            world.cancel(f"t{max(0, number - rng.randrange(20))}")
        check(world, workers)
        assert world.engine.ledger.tombstones <= 16
        for uid in [uid for uid, call in world.started.items() if over(call)]:
            del world.started[uid]
    if seed % 2:
        world.engine.stop()
        world.abandon()
    settle(world, workers, owed)
