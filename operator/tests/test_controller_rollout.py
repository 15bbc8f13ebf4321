"""How Pods move to a new template: the steps of one look, and where repeated looks end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.api.views import Condition
from kruntimes.controller.rollout import (
    BUSY_COST,
    Create,
    Generation,
    PodFact,
    Protect,
    Remove,
    Scale,
    Step,
    Trouble,
    complete,
    conditions,
    hindrance,
    plan,
)


def pod(name: str, *, ready: bool = True, busy: bool = False, cost: str | None = None) -> PodFact:
    return PodFact(key=f"n/{name}", uid=f"uid-{name}", ready=ready, busy=busy, cost=cost)


def generation(name: str, replicas: int, *pods: PodFact) -> Generation:
    return Generation(name=name, uid=f"uid-{name}", replicas=replicas, pods=pods)


def scale(name: str, replicas: int) -> Scale:
    return Scale(name, f"uid-{name}", replicas)


FREE, BUSY, SAFE = pod("free"), pod("busy", busy=True), pod("busy", busy=True, cost=BUSY_COST)

CASES = [
    pytest.param(2, None, [], [Create(2)], id="first"),
    pytest.param(2, generation("new", 2), [], [], id="waits-for-its-pods"),
    pytest.param(3, generation("new", 2), [], [scale("new", 3)], id="more"),
    pytest.param(1, generation("new", 2, FREE, SAFE), [], [scale("new", 1)], id="fewer"),
    pytest.param(
        1, generation("new", 2, FREE, BUSY), [], [Protect("n/busy", "uid-busy", BUSY_COST)], id="protects-first"
    ),
    pytest.param(
        1,
        generation("new", 2, pod("free", cost=BUSY_COST), SAFE),
        [],
        [Protect("n/free", "uid-free", None)],
        id="what-has-fallen-free-is-protected-no-more",
    ),
    pytest.param(1, None, [generation("old", 1, FREE)], [Create(1)], id="the-old-serves-until-the-new-is-ready"),
    pytest.param(1, generation("new", 1, pod("n", ready=False)), [generation("old", 1, FREE)], [], id="not-ready-yet"),
    pytest.param(
        2,
        generation("new", 2, pod("n"), pod("m", ready=False)),
        [generation("old", 2, FREE, pod("free2"))],
        [scale("old", 1)],
        id="one-for-one",
    ),
    pytest.param(
        2,
        generation("new", 2, pod("n"), pod("m")),
        [generation("old", 2, FREE, SAFE)],
        [scale("old", 1)],
        id="busy-ones-stay",
    ),
    pytest.param(
        2, generation("new", 2, pod("n"), pod("m")), [generation("old", 1, SAFE)], [], id="only-busy-ones-left"
    ),
    pytest.param(
        1, generation("new", 1, pod("n")), [generation("old", 0)], [Remove("old", "uid-old")], id="empty-ones-go"
    ),
    pytest.param(1, generation("new", 1, pod("n")), [generation("old", 0, FREE)], [], id="its-last-pod-is-still-going"),
    pytest.param(
        2,
        generation("new", 2),
        [generation("older", 2, FREE, pod("f")), generation("old", 2, pod("g"), pod("h"))],
        [scale("old", 0)],
        id="two-old-ones-share-what-is-lacking",
    ),
]


@pytest.mark.parametrize(("wanted", "current", "old", "expected"), CASES)
def test_the_plan(wanted: int, current: Generation | None, old: list[Generation], expected: list[Step]) -> None:
    assert plan(wanted=wanted, current=current, old=old) == expected


REFUSED = [
    pytest.param(2, [], [], id="nothing-serves"),
    pytest.param(3, [generation("old", 2, FREE, BUSY)], [scale("old", 3)], id="more"),
    pytest.param(1, [generation("old", 2, FREE, SAFE)], [scale("old", 1)], id="fewer"),
    pytest.param(
        2,
        [generation("gone", 0), generation("old", 2, pod("n"), pod("m"))],
        [Remove("gone", "uid-gone")],
        id="the-larger-serves",
    ),
    pytest.param(
        2,
        [
            Generation(name="b", uid="uid-b", replicas=2, created="2026-01-01T00:00:00Z"),
            Generation(name="a", uid="uid-a", replicas=2, created="2026-01-02T00:00:00Z", pods=(pod("n"), pod("m"))),
        ],
        [scale("b", 0)],
        id="of-equals-the-newer",
    ),
]


@pytest.mark.parametrize(("wanted", "old", "expected"), REFUSED)
def test_the_plan_while_the_template_is_refused(wanted: int, old: list[Generation], expected: list[Step]) -> None:
    assert plan(wanted=wanted, current=None, old=old, refused=True) == expected


def test_what_the_replica_sets_controller_says() -> None:
    no, older = Trouble("FailedCreate", "no"), Trouble("FailedDelete", "neither")
    new = Generation(name="new", uid="u", replicas=1, failure=no)
    old = Generation(name="old", uid="v", replicas=1, failure=older)
    assert hindrance(wanted=1, current=new, old=[old]) == no
    assert hindrance(wanted=1, current=None, old=[old]) == older
    assert hindrance(wanted=1, current=generation("new", 1), old=[]) is None
    ready = Generation(name="new", uid="u", replicas=1, failure=no, pods=(pod("n"),))
    assert hindrance(wanted=1, current=ready, old=[]) is None


@given(st.integers(1, 5), st.integers(0, 5), st.lists(st.booleans(), max_size=5))
def test_an_old_template_never_loses_a_busy_pod_nor_the_service_too_many(
    wanted: int, ready: int, busy: list[bool]
) -> None:
    new = generation("new", wanted, *(pod(f"n{i}") for i in range(min(ready, wanted))))
    members = [pod(f"o{i}", busy=one, cost=BUSY_COST if one else None) for i, one in enumerate(busy)]
    old = generation("old", len(members), *members)
    for step in plan(wanted=wanted, current=new, old=[old]):
        assert isinstance(step, Scale | Remove)
        if isinstance(step, Scale):
            assert step.replicas >= sum(busy)
            assert step.replicas < old.replicas
            assert step.replicas + len(new.pods) >= min(wanted, old.replicas + len(new.pods))


def test_when_it_is_complete() -> None:
    new = generation("new", 1, pod("n"))
    assert complete(wanted=1, current=new, old=[])
    assert not complete(wanted=1, current=new, old=[generation("old", 0)])
    assert not complete(wanted=2, current=new, old=[])
    assert not complete(wanted=1, current=None, old=[])


def say(
    held: tuple[Condition, ...] = (),
    *,
    ready: int = 1,
    done: bool = True,
    trouble: Trouble | None = None,
    now: str = "t1",
) -> tuple[Condition, ...]:
    return conditions(held, ready=ready, wanted=1, done=done, trouble=trouble, generation=3, now=now)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(say(), [("True", "PodsReady"), ("False", "Complete")], id="complete"),
        pytest.param(say(ready=0, done=False), [("False", "NoReadyPod"), ("True", "RollingOut")], id="rolling-out"),
        pytest.param(
            say(ready=0, done=False, trouble=Trouble("TemplateRefused", "no")),
            [("False", "NoReadyPod"), ("False", "TemplateRefused")],
            id="refused",
        ),
    ],
)
def test_what_the_status_says(said: tuple[Condition, ...], expected: list[tuple[str, str]]) -> None:
    assert [(one.status, one.reason) for one in said] == expected
    assert all(one.observed_generation == 3 for one in said)


def test_a_transition_time_moves_with_the_status_only_and_foreign_conditions_stay() -> None:
    foreign = Condition(type="Foreign", status="True")
    first = say((foreign,), done=False)
    then = say(first, now="t2")
    assert then[0] is foreign
    assert [one.last_transition_time for one in then[1:]] == ["t1", "t2"]
