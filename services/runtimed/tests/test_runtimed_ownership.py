"""Where a request goes, whatever the caches have seen so far."""

from typing import Any

import msgspec
import pytest

from kruntimes.common.api.epoch import Epoch
from kruntimes.common.api.names import FINALIZER, InvokePath
from kruntimes.common.api.views import Pod, RouteRun
from kruntimes.runtimed.ownership import (
    Asked,
    Ended,
    Here,
    Mismatch,
    NotFound,
    NotReady,
    Own,
    Peer,
    Registered,
    Route,
    route,
)

UID, POD, OTHER = "run-1", "pod-1", "pod-2"
OWN = Own(namespace="demo", runtime="python", pod_uid=POD)
EPOCH = Epoch(UID, 2, POD)
SERVING = Registered(epoch=EPOCH, serving=True)
CLOSED = Registered(epoch=EPOCH, serving=False)
ELSEWHERE = Epoch(UID, 2, OTHER)


def seen(
    phase: str = "Ready", *, pod: str = POD, attempt: int = 2, deleting: bool = False, held: bool = True
) -> RouteRun:
    deletion = "2027-01-15T08:00:00Z" if deleting else None
    finalizers = [FINALIZER] if held else ["example.org/hold"]
    document: dict[str, Any] = {
        "metadata": {"uid": UID, "deletionTimestamp": deletion, "finalizers": finalizers},
        "spec": {"runtime": "python"},
        "status": {
            "phase": phase,
            "assignedPod": pod and f"name-of-{pod}",
            "assignedPodUID": pod,
            "attempt": attempt,
            "conditions": [{"type": "Ready", "status": "True" if phase == "Ready" else "False"}],
        },
    }
    return msgspec.convert(document, RouteRun)


def pod(uid: str = OTHER, *, ip: str = "10.0.0.2", deleting: bool = False) -> Pod:
    metadata = {"uid": uid, "deletionTimestamp": "2027-01-15T08:00:00Z" if deleting else None}
    return msgspec.convert({"metadata": metadata, "status": {"podIP": ip}}, Pod)


def asked(
    expected: Epoch | None = None,
    *,
    hop: bool = False,
    uid: str = UID,
    runtime: str = "python",
    namespace: str = "demo",
) -> Asked:
    return Asked(path=InvokePath(namespace, runtime, UID, canonical=True), expected=expected, hop=hop)


@pytest.mark.parametrize(
    ("request_", "run", "registered", "owner", "expected"),
    [
        # the direct path: the router named this Pod and this attempt
        pytest.param(asked(EPOCH), seen(), SERVING, None, Here(EPOCH), id="direct"),
        pytest.param(asked(EPOCH), seen("Running"), SERVING, None, Here(EPOCH), id="our-watch-is-behind-our-own-write"),
        pytest.param(asked(EPOCH), seen("Scheduled", attempt=1), SERVING, None, Here(EPOCH), id="and-behind-the-claim"),
        pytest.param(asked(EPOCH), seen(), None, None, NotReady, id="direct-but-we-were-restarted"),
        pytest.param(
            asked(EPOCH),
            seen(),
            Registered(epoch=EPOCH, serving=False),
            None,
            NotReady,
            id="direct-but-closed-or-fenced",
        ),
        pytest.param(asked(Epoch(UID, 3, POD)), seen(), SERVING, None, NotReady, id="the-router-is-ahead-of-us"),
        pytest.param(asked(Epoch(UID, 1, POD)), seen(), SERVING, None, Mismatch, id="the-router-is-behind"),
        pytest.param(asked(EPOCH), seen(attempt=3), SERVING, None, NotReady, id="a-newer-attempt-is-known"),
        pytest.param(asked(EPOCH), seen(pod=OTHER), SERVING, None, NotReady, id="assigned-elsewhere-meanwhile"),
        pytest.param(asked(Epoch(UID, 2, OTHER)), seen(), SERVING, None, Mismatch, id="meant-for-another-pod"),
        pytest.param(asked(Epoch("run-2", 2, POD)), seen(), SERVING, None, Mismatch, id="meant-for-another-run"),
        pytest.param(asked(EPOCH), None, None, None, NotFound, id="direct-to-a-run-that-is-gone"),
        pytest.param(asked(EPOCH), seen(deleting=True), SERVING, None, NotReady, id="direct-while-it-is-deleted"),
        # the fallback: any Pod of the Runtime
        pytest.param(asked(), seen(), SERVING, None, Here(EPOCH), id="fallback-to-the-owner-itself"),
        pytest.param(asked(), seen("Running"), SERVING, None, Here(EPOCH), id="fallback-before-our-watch-knows"),
        pytest.param(asked(), seen(), None, None, NotReady, id="ours-and-being-registered-again"),
        pytest.param(asked(), seen(), Registered(epoch=EPOCH, serving=False), None, NotReady, id="ours-and-not-served"),
        pytest.param(
            asked(), seen(pod=OTHER), None, pod(), Peer("10.0.0.2:9444", Epoch(UID, 2, OTHER)), id="to-the-owner"
        ),
        pytest.param(
            asked(),
            seen(pod=OTHER, attempt=3),
            Registered(epoch=EPOCH, serving=False),
            pod(),
            NotReady,
            id="ours-is-over-and-not-yet-let-go",
        ),
        pytest.param(asked(), seen(pod=OTHER), None, None, NotReady, id="the-owner's-pod-is-not-seen-yet"),
        pytest.param(asked(), seen(pod=OTHER), None, pod("pod-3"), NotReady, id="its-name-has-another-pod"),
        pytest.param(asked(), seen(pod=OTHER), None, pod(ip=""), NotReady, id="the-owner-has-no-address"),
        pytest.param(asked(), seen(pod=OTHER), None, pod(deleting=True), NotReady, id="the-owner-drains"),
        pytest.param(asked(), seen("Running", pod=OTHER), None, pod(), NotReady, id="not-ready-there"),
        pytest.param(asked(), seen("Pending", pod=""), None, None, NotReady, id="pending"),
        *(
            pytest.param(asked(), seen(phase), None, None, Ended(f"the Run has ended: {phase}"), id=phase.lower())
            for phase in ("Succeeded", "Failed", "Timeout", "Cancelled")
        ),
        pytest.param(asked(EPOCH), seen("Cancelled"), CLOSED, None, Ended, id="direct-to-one-that-has-ended"),
        pytest.param(asked(), seen(deleting=True), SERVING, None, NotReady, id="deleting"),
        pytest.param(asked(), seen(deleting=True, held=False), None, None, Ended, id="deleted-and-held-by-others"),
        pytest.param(asked(), None, None, None, NotFound, id="unknown"),
        pytest.param(asked(runtime="bash"), seen(), SERVING, None, NotFound, id="another-runtime's-path"),
        pytest.param(asked(namespace="prod"), seen(), SERVING, None, NotFound, id="another-namespace's-path"),
        # the one hop
        pytest.param(asked(EPOCH, hop=True), seen(), SERVING, None, Here(EPOCH), id="hop"),
        pytest.param(asked(hop=True), seen(), SERVING, None, Mismatch, id="hop-without-an-epoch"),
        pytest.param(
            asked(Epoch(UID, 2, OTHER), hop=True), seen(pod=OTHER), None, pod(), Mismatch, id="never-a-second"
        ),
        pytest.param(asked(EPOCH, hop=True), seen(), None, None, NotReady, id="hop-before-we-registered"),
    ],
)
def test_routes(
    request_: Asked,
    run: RouteRun | None,
    registered: Registered | None,
    owner: Pod | None,
    expected: Route | type[Route],
) -> None:
    got = route(request_, own=OWN, run=run, registered=registered, owner=owner)
    if isinstance(expected, type):
        assert isinstance(got, expected)
    else:
        assert got == expected
