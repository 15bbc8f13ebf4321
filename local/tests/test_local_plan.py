"""The node's plan: what comes next for a Pod, by table and by property."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.local.node.plan import (
    MAX_BACKOFF_SECONDS,
    STABLE_SECONDS,
    Ending,
    Kill,
    Kind,
    Life,
    Observed,
    Part,
    Plan,
    Prepare,
    Remove,
    Restart,
    Stage,
    Start,
    Stop,
    backoff,
    decide,
    ending,
)

INIT = Part(name="init", kind=Kind.INIT, restart=Restart.ALWAYS)
RUNTIMED = Part(name="runtimed", kind=Kind.SIDECAR, restart=Restart.ALWAYS, known_by_pid=True)
AUTHZ = Part(name="authz", kind=Kind.SIDECAR, restart=Restart.ALWAYS)
RUNTIME = Part(name="runtime", kind=Kind.MAIN, restart=Restart.ALWAYS)
ONCE = Part(name="runtime", kind=Kind.MAIN, restart=Restart.NEVER)

WAITING = Life()
STARTING = Life(stage=Stage.RUNNING, since=50.0)
UP = Life(stage=Stage.RUNNING, since=50.0, started=True, ready=True)
STOPPING = Life(stage=Stage.STOPPING, since=95.0, asked=True)
DONE = Life(stage=Stage.ENDED, since=90.0, code=0, failures=1)
FAILED = Life(stage=Stage.ENDED, since=99.9, code=1, failures=1)
KILLED = Life(stage=Stage.ENDED, since=99.9, code=137, signal=9, failures=1)
STOPPED = Life(stage=Stage.ENDED, since=99.9, code=143, signal=15, asked=True, failures=1)
NOW = 100.0


def observed(
    *parts: Part, lives: Mapping[str, Life], deleting: bool = False, controlled: bool = True, prepared: bool = True
) -> Observed:
    return Observed(parts=parts, lives=lives, deleting=deleting, controlled=controlled, prepared=prepared, grace=10.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": WAITING, "runtime": WAITING}, prepared=False),
            Plan((Prepare(),)),
            id="volumes-first",
        ),
        pytest.param(
            observed(INIT, RUNTIMED, RUNTIME, lives={"init": WAITING, "runtimed": WAITING, "runtime": WAITING}),
            Plan((Start("init"),)),
            id="init-containers-in-order",
        ),
        pytest.param(
            observed(INIT, RUNTIMED, RUNTIME, lives={"init": DONE, "runtimed": WAITING, "runtime": WAITING}),
            Plan((Start("runtimed"),)),
            id="the-next-after-the-last-succeeded",
        ),
        pytest.param(
            observed(INIT, RUNTIME, lives={"init": FAILED, "runtime": WAITING}, controlled=False),
            Plan((), 99.9 + 0.5),
            id="a-failed-init-container-waits-for-its-back-off",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": STARTING, "runtime": WAITING}),
            Plan(),
            id="a-sidecar-holds-the-rest-until-its-startup-probe-passes",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": UP, "runtime": WAITING}),
            Plan((Start("runtime"),)),
            id="main-containers-after-the-sidecar-has-started",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": UP, "runtime": UP}), Plan(), id="nothing-to-do-when-all-runs"
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": UP, "runtime": UP}, deleting=True),
            Plan((Stop("runtime", 10.0),)),
            id="deletion-stops-main-containers-first",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": UP, "runtime": STOPPING}, deleting=True),
            Plan((), 105.0),
            id="the-sidecar-lives-until-the-main-container-has-ended",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": UP, "runtime": STOPPED}, deleting=True),
            Plan((Stop("runtimed", 10.0),)),
            id="sidecars-last",
        ),
        pytest.param(
            observed(
                RUNTIMED, RUNTIME,
                lives={"runtimed": UP, "runtime": Life(stage=Stage.STOPPING, since=90.0, asked=True)}, deleting=True,
            ),
            Plan((Kill("runtime"),)),
            id="what-outlives-its-grace-is-killed",
        ),
        pytest.param(
            observed(AUTHZ, RUNTIMED, lives={"authz": UP, "runtimed": UP}, deleting=True),
            Plan((Stop("runtimed", 10.0),)),
            id="sidecars-from-the-last-to-the-first",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": STOPPED, "runtime": STOPPED}, deleting=True),
            Plan((Remove(Ending.DELETING),)),
            id="removed-when-nothing-runs",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": WAITING, "runtime": WAITING}, deleting=True, prepared=False),
            Plan((Remove(Ending.DELETING),)),
            id="deleted-before-it-began",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": UP, "runtime": KILLED}),
            Plan((Stop("runtimed", 10.0),)),
            id="a-killed-process-loses-a-controlled-pod",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": STOPPED, "runtime": KILLED}),
            Plan((Remove(Ending.LOST),)),
            id="a-lost-pod-is-removed",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": FAILED, "runtime": UP}),
            Plan((Stop("runtime", 10.0),)),
            id="a-sidecar-known-by-its-pid-cannot-be-started-again",
        ),
        pytest.param(
            observed(AUTHZ, RUNTIME, lives={"authz": UP, "runtime": KILLED}, controlled=False),
            Plan((), 99.9 + 0.5),
            id="a-killed-service-is-started-again-after-a-back-off",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": UP, "runtime": FAILED}),
            Plan((), 99.9 + 0.5),
            id="a-container-that-ended-by-itself-is-started-again-in-its-pod",
        ),
        pytest.param(
            observed(RUNTIMED, RUNTIME, lives={"runtimed": UP, "runtime": DONE}),
            Plan((Start("runtime"),)),
            id="after-the-back-off",
        ),
        pytest.param(
            observed(ONCE, lives={"runtime": FAILED}, controlled=False), Plan(), id="never-means-never"
        ),
    ],
)  # fmt: skip
def test_what_comes_next(given: Observed, expected: Plan) -> None:
    assert decide(given, now=NOW) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(observed(ONCE, lives={"runtime": DONE}), Ending.SUCCEEDED, id="succeeded"),
        pytest.param(observed(ONCE, lives={"runtime": FAILED}), Ending.FAILED, id="failed"),
        pytest.param(observed(RUNTIME, lives={"runtime": FAILED}), None, id="always-is-never-over"),
        pytest.param(observed(RUNTIME, lives={"runtime": STOPPED}), None, id="stopped-by-the-node-is-not-lost"),
        pytest.param(observed(RUNTIME, lives={"runtime": UP}, deleting=True), Ending.DELETING, id="deleting"),
    ],
)
def test_why_a_pod_is_over(given: Observed, expected: Ending | None) -> None:
    assert ending(given) == expected


def test_a_stable_container_starts_its_back_off_anew() -> None:
    life = Life(stage=Stage.RUNNING, since=0.0, failures=7)
    assert life.ended(code=1, signal=0, now=STABLE_SECONDS).failures == 1
    assert life.ended(code=1, signal=0, now=STABLE_SECONDS - 1).failures == 8


def test_the_back_off_doubles_up_to_its_bound() -> None:
    assert [backoff(n) for n in (0, 1, 2, 3)] == [0.0, 0.5, 1.0, 2.0]
    assert backoff(10_000) == MAX_BACKOFF_SECONDS


_LIVES = st.sampled_from([WAITING, STARTING, UP, STOPPING, DONE, FAILED, KILLED, STOPPED])


@given(st.fixed_dictionaries({"init": _LIVES, "runtimed": _LIVES, "runtime": _LIVES}), st.booleans(), st.booleans())
def test_rules_that_hold_in_every_state(lives: dict[str, Life], deleting: bool, controlled: bool) -> None:
    given_ = observed(INIT, RUNTIMED, RUNTIME, lives=lives, deleting=deleting, controlled=controlled)
    plan = decide(given_, now=NOW)
    names = [action.name for action in plan.actions if isinstance(action, Start | Stop | Kill)]
    assert len(names) == len(set(names)), "one action per container"
    for action in plan.actions:
        if isinstance(action, Start):
            assert not lives[action.name].up, "what runs is not started"
            assert not deleting, "a deleting Pod starts nothing"
        if isinstance(action, Remove):
            assert not any(life.up for life in lives.values()), "no Pod is removed while something of it runs"
    assert plan.wake is None or plan.wake > NOW, "never wakes in the past"
    if plan.wake is None and not plan.actions:
        assert all(life.stage is not Stage.STOPPING for life in lives.values()), "a grace period is waited for"
