"""How heartbeats are read: only a change that was seen counts, on one clock."""

import pytest

from kruntimes.common.api.views import Lease, LeaseSpec, Meta, OwnerReference
from kruntimes.controller.heartbeats import Heartbeats

WALL = 1767225600.0
START = "2026-01-01T00:00:00.000000Z"
LATER = "2026-01-01T00:00:10.000000Z"
OLD = "2025-12-31T23:00:00.000000Z"


def lease(renewed: str, uid: str = "u", holder: str = "") -> Lease:
    owners = (OwnerReference(kind="Pod", name="p", uid=uid),) if uid else ()
    return Lease(
        metadata=Meta(name="p", namespace="n", owner_references=owners),
        spec=LeaseSpec(renew_time=renewed, holder_identity=holder),
    )


def alive(beats: Heartbeats, at: float, uid: str = "u", healthy_since: float | None = 0.0) -> bool:
    return beats.alive("n/p", uid, monotonic=at, healthy_since=healthy_since)


def silence(beats: Heartbeats, at: float, healthy_since: float | None = 0.0) -> float:
    return beats.silence("n/p", "u", monotonic=at, healthy_since=healthy_since, since=0.0)


def test_a_recent_lease_is_life_for_30_seconds() -> None:
    beats = Heartbeats()
    beats.observe(lease(START), monotonic=100, wall=WALL)
    assert alive(beats, 129.9)
    assert not alive(beats, 130)
    assert silence(beats, 130) == 30


def test_an_old_lease_at_first_sight_is_no_life_until_it_changes() -> None:
    beats = Heartbeats()
    beats.observe(lease(OLD), monotonic=100, wall=WALL)
    assert not alive(beats, 100)
    beats.observe(lease(OLD), monotonic=105, wall=WALL)
    assert not alive(beats, 105)
    beats.observe(lease("2025-12-31T23:00:10.000000Z"), monotonic=110, wall=WALL)
    assert alive(beats, 110)


def test_an_old_lease_at_first_sight_is_not_yet_lost_either() -> None:
    beats = Heartbeats()
    beats.observe(lease(OLD), monotonic=100, wall=WALL)
    assert silence(beats, 101) == 1


def test_seeing_the_same_renewal_again_is_no_sign_of_life() -> None:
    beats = Heartbeats()
    beats.observe(lease(START), monotonic=100, wall=WALL)
    beats.observe(lease(START), monotonic=120, wall=WALL)
    assert silence(beats, 140) == 40


def test_silence_of_a_broken_watch_proves_nothing_and_begins_anew_after_it() -> None:
    beats = Heartbeats()
    beats.observe(lease(START), monotonic=100, wall=WALL)
    assert silence(beats, 500, healthy_since=None) == 0
    assert silence(beats, 500, healthy_since=490) == 10


def test_a_pod_that_never_showed_life_is_silent_since_it_was_seen() -> None:
    beats = Heartbeats()
    assert beats.silence("n/p", "u", monotonic=50, healthy_since=0, since=20) == 30
    assert not alive(beats, 50)


def test_a_reused_name_is_another_pod() -> None:
    beats = Heartbeats()
    beats.observe(lease(START), monotonic=100, wall=WALL)
    assert not alive(beats, 101, uid="other")


@pytest.mark.parametrize(
    ("owner", "holder"), [pytest.param("u", "anything", id="owner"), pytest.param("", "u", id="holder")]
)
def test_whose_sign_of_life_it_is(owner: str, holder: str) -> None:
    beats = Heartbeats()
    beats.observe(lease(START, uid=owner, holder=holder), monotonic=100, wall=WALL)
    assert alive(beats, 101)


def test_a_deleted_lease_is_forgotten() -> None:
    beats = Heartbeats()
    beats.observe(lease(START), monotonic=100, wall=WALL)
    beats.forget("n/p")
    assert not alive(beats, 101)
