"""What is served again after a self-fence: only what the API says, now, is still ours."""

from typing import Any

import msgspec
import pytest

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.views import RouteRun
from kruntimes.common.kube import errors
from kruntimes.runtimed.confirm import confirm
from kruntimes.runtimed.held import Held, Registry
from kruntimes.runtimed.observed import Function, FunctionState, Stage

POD = "pod-1"


class Plane:
    """The API server as far as one list goes."""

    def __init__(self, *runs: RouteRun, down: bool = False) -> None:
        self.runs, self.down = runs, down

    async def list(self, path: str, type: Any, *, field_selector: str) -> tuple[list[RouteRun], str]:
        if self.down:
            raise errors.Unreachable(status=0, reason="Unreachable", message="down")
        assert field_selector == f"status.assignedPodUID={POD}"
        return list(self.runs), "1"


def run(*, uid: str = "u", attempt: int = 1, phase: str = "Ready", deleting: bool = False) -> RouteRun:
    deletion = "2027-01-15T08:00:00Z" if deleting else None
    document = {
        "metadata": {"uid": uid, "deletionTimestamp": deletion},
        "status": {"phase": phase, "assignedPodUID": POD, "attempt": attempt},
    }
    return msgspec.convert(document, RouteRun)


def registry() -> tuple[Registry, Held]:
    held = Held(
        key="n/f",
        epoch=Epoch("u", 1, POD),
        since=0.0,
        stage=Stage.REGISTERED,
        function=Function(state=FunctionState.READY, read_at=0.0),
    )
    made = Registry()
    made.put(held)
    return made, held


@pytest.mark.parametrize(
    ("runs", "serving"),
    [
        pytest.param([run()], True, id="ours"),
        pytest.param([run(phase="Running")], True, id="ours-and-not-published-yet"),
        pytest.param([], False, id="given-to-another-or-gone"),
        pytest.param([run(uid="other")], False, id="its-name-is-another-run's"),
        pytest.param([run(attempt=2, phase="Running")], False, id="ours-in-a-later-attempt"),
        pytest.param([run(phase="Scheduled")], False, id="ours-anew-and-not-claimed"),
        pytest.param([run(phase="Failed")], False, id="ended-while-we-were-silent"),
        pytest.param([run(deleting=True)], False, id="deleted-while-we-were-silent"),
    ],
)
async def test_only_what_is_ours_is_served_again(runs: list[RouteRun], serving: bool) -> None:
    held_by, held = registry()
    looked: list[Held] = []
    await confirm(Plane(*runs), held_by, namespace="n", pod_uid=POD, look=looked.append)  # type: ignore[arg-type]
    assert held.serving is serving
    assert looked == ([] if serving else [held])


async def test_without_an_answer_nothing_is_known() -> None:
    held_by, held = registry()
    with pytest.raises(errors.Unreachable):
        await confirm(Plane(down=True), held_by, namespace="n", pod_uid=POD, look=lambda _: None)  # type: ignore[arg-type]
    assert held.open
