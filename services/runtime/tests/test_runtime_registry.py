"""Generations by attempt and digest, row by row (executor.v1)."""

from dataclasses import replace

import pytest

from kruntimes.runtime.registry import (
    Code,
    Existing,
    New,
    Refused,
    Registration,
    Registry,
    State,
    Wanted,
    decide_find,
    decide_invoke,
    decide_register,
)

WANTED = Wanted(run_uid="u", attempt=3, digest="d" * 64, handler="main.handler", working_dir="/w")
CURRENT = Registration(id="r3", wanted=WANTED, state=State.READY)


@pytest.mark.parametrize(
    ("current", "newest", "wanted", "expected"),
    [
        pytest.param(None, 0, WANTED, New(Registration(id="new", wanted=WANTED), None), id="the-first"),
        pytest.param(CURRENT, 3, WANTED, Existing(CURRENT), id="the-same-again"),
        pytest.param(
            CURRENT, 3, replace(WANTED, working_dir="/elsewhere"), Existing(CURRENT), id="the-folder-is-not-identity"
        ),
        pytest.param(CURRENT, 3, replace(WANTED, digest="e" * 64), Code.ALREADY_EXISTS, id="another-digest"),
        pytest.param(CURRENT, 3, replace(WANTED, attempt=2), Code.FAILED_PRECONDITION, id="a-lower-attempt"),
        pytest.param(
            CURRENT, 3, replace(WANTED, attempt=2, digest="e" * 64), Code.FAILED_PRECONDITION, id="lower-and-other"
        ),
        pytest.param(
            CURRENT, 3, replace(WANTED, attempt=4),
            New(Registration(id="new", wanted=replace(WANTED, attempt=4)), CURRENT), id="a-higher-attempt",
        ),
        pytest.param(None, 3, replace(WANTED, attempt=2), Code.FAILED_PRECONDITION, id="lower-after-it-was-removed"),
        pytest.param(
            None, 3, WANTED, New(Registration(id="new", wanted=WANTED), None), id="the-same-after-it-was-removed"
        ),
        pytest.param(replace(CURRENT, state=State.DRAINING), 3, WANTED, Code.FAILED_PRECONDITION, id="while-draining"),
        pytest.param(
            replace(CURRENT, state=State.FAILED), 3, WANTED, Existing(replace(CURRENT, state=State.FAILED)),
            id="a-failed-one-stays-failed",
        ),
    ],
)  # fmt: skip
def test_register(current: Registration | None, newest: int, wanted: Wanted, expected: object) -> None:
    decision = decide_register(current, newest, wanted, new_id="new")
    assert (decision.code if isinstance(decision, Refused) else decision) == expected


@pytest.mark.parametrize(
    ("current", "registration_id", "expected"),
    [
        pytest.param(CURRENT, "r3", CURRENT, id="current"),
        pytest.param(CURRENT, "r2", Code.FAILED_PRECONDITION, id="stale"),
        pytest.param(None, "r3", Code.NOT_FOUND, id="unknown"),
    ],
)
def test_find(current: Registration | None, registration_id: str, expected: object) -> None:
    found = decide_find(current, registration_id)
    assert (found.code if isinstance(found, Refused) else found) == expected


@pytest.mark.parametrize("state", list(State))
def test_only_a_ready_function_takes_calls(state: State) -> None:
    refused = decide_invoke(replace(CURRENT, state=state, fatal_error="SyntaxError: no (main.py, line 1)\nmore"))
    assert (refused is None) == (state is State.READY)
    if refused is not None:
        assert refused.code is Code.FAILED_PRECONDITION
    if state is State.FAILED:
        assert refused is not None
        assert refused.message == "SyntaxError: no (main.py, line 1)"


def test_a_stale_registration_neither_moves_nor_removes_the_newer_one() -> None:
    registry = Registry()
    first = registry.register(WANTED, new_id="r3")
    second = registry.register(replace(WANTED, attempt=4), new_id="r4")
    assert isinstance(first, New)
    assert isinstance(second, New)
    assert second.replaces == first.registration
    registry.move(first.registration, State.FAILED, fatal_error="late")
    registry.remove(first.registration)
    found = registry.find("u", "r4")
    assert isinstance(found, Registration)
    assert found.state is State.REGISTERING


def test_draining_is_never_left() -> None:
    registry = Registry()
    new = registry.register(WANTED, new_id="r3")
    registry.move(new.registration, State.DRAINING)
    registry.move(new.registration, State.READY)
    found = registry.find("u", "r3")
    assert isinstance(found, Registration)
    assert found.state is State.DRAINING


def test_a_removed_run_is_unknown_and_its_attempts_are_remembered() -> None:
    registry = Registry()
    new = registry.register(WANTED, new_id="r3")
    registry.remove(new.registration)
    assert len(registry) == 0
    assert isinstance(found := registry.find("u", "r3"), Refused)
    assert found.code is Code.NOT_FOUND
    late = registry.register(replace(WANTED, attempt=1), new_id="x")
    assert isinstance(late, Refused)
    assert late.code is Code.FAILED_PRECONDITION
