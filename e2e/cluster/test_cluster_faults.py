"""What breaks on a node or in the control plane while Runs live: how each ends, and that no capacity is lost by it."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from cluster.faults import Killer, killer, restarts, signal_control_plane
from cluster.release import NAMESPACE, Cluster
from support import RUNS, Api, Gateway, eventually

pytestmark = pytest.mark.timeout(300)  # several waits of up to two minutes each
SOURCE = """
import time

def handler(event):
    time.sleep(event.get("seconds", 0))
    return {"pid": "served"}
"""
SECONDS = 120.0
"""For everything that waits for a container to be started again on a busy node."""
CAPACITY = 16
"""Of the Runtime python as the chart has it: two Pods of eight Runs."""
MANY = 200
RESTARTS = 2
"""The kubelet starts a container again at once, then after 10 s, 20 s, and so on."""
ENDED = ("Succeeded", "Failed", "Timeout", "Cancelled")


@pytest.fixture(scope="module")
def faults(stack: Any, cluster: Cluster) -> Iterator[Killer]:
    with killer(cluster) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def nothing_leaks(stack: Any, api: Api, cluster: Cluster) -> Iterator[None]:
    """After all of it the Runtime holds as many Runs as it ever did, and then none."""
    yield
    eventually("no Run is left", lambda: not live(api), SECONDS)
    cluster.runtime_ready("python", 2)
    names = [declare(api) for _ in range(CAPACITY)]
    for name in names:
        api.ready(name, seconds=SECONDS)
    for name in names:
        api.delete(name)
    assert not live(api)


@pytest.fixture(autouse=True)
def rested(stack: Any, cluster: Cluster) -> Iterator[None]:
    """A container that was killed again and again is started only after a pause of minutes: its Pod is replaced."""
    yield
    worn = [pod for pod in cluster.pods("runtime=python", "default") if restarts(pod) >= RESTARTS]
    for pod in worn:
        cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", "default", "--wait=false")
    if worn:
        uids = {pod["metadata"]["uid"] for pod in worn}

        def gone() -> bool:
            return not uids & {pod["metadata"]["uid"] for pod in cluster.json("pods", "-n", "default")["items"]}

        eventually("worn Pods are gone", gone, SECONDS)
        cluster.runtime_ready("python", 2)


def live(api: Api) -> list[str]:
    """Runs that take capacity of a Pod, or wait for it."""
    found = api.get(RUNS.format("default"))
    assert found is not None
    return [one["metadata"]["name"] for one in found["items"] if one.get("status", {}).get("phase") not in ENDED]


def declare(api: Api, **spec: Any) -> str:
    name = f"fault-{uuid.uuid4().hex[:10]}"
    api.declare(name, SOURCE, handler="case.handler", **spec)
    return name


def task(api: Api, code: str, **spec: Any) -> str:
    name = f"fault-{uuid.uuid4().hex[:10]}"
    source = {"inline": f"#!/usr/bin/env python3\n{code}"}
    body = {"runtime": "python", "mode": {"task": {}}, "source": source, **spec}
    kind = {"apiVersion": "kruntimes.io/v1alpha1", "kind": "Run", "metadata": {"name": name}, "spec": body}
    api.call("POST", RUNS.format("default"), kind)
    return name


def state(api: Api, name: str) -> dict[str, Any]:
    found = api.run(name)
    assert found is not None, f"{name} is gone"
    return found.get("status", {})


def ended(api: Api, name: str, phase: str, seconds: float = SECONDS) -> dict[str, Any]:
    """Waits for an end; it must be this one."""
    last = eventually(
        f"{name} ends", lambda: state(api, name) if state(api, name).get("phase") in ENDED else None, seconds
    )
    assert last["phase"] == phase, last
    finalizers = (api.run(name) or {"metadata": {}})["metadata"].get("finalizers", [])
    assert not finalizers
    return dict(last)


def reason(status: dict[str, Any]) -> str:
    return next((one["reason"] for one in status.get("conditions", ()) if one["type"] == "Ready"), "")


def call(gateway: Gateway, url: str, **event: Any) -> httpx.Response:
    with gateway.client() as client:
        return client.post(url, headers=gateway.headers(), json=event)


def served(gateway: Gateway, status: dict[str, Any]) -> None:
    """Waits until the function is called; a refusal that is safe to repeat is a right answer until then."""

    def called() -> bool:
        answer = call(gateway, status["endpoint"]["url"])
        assert answer.status_code == 200 or answer.headers["x-kruntime-retry-safe"] == "true", answer.text
        return answer.status_code == 200

    eventually("called again", called, SECONDS)


def cancelled(api: Api, name: str) -> None:
    path = f"{RUNS.format('default')}/{name}"
    api.call("PATCH", path, {"spec": {"cancelRequested": True}}, "application/merge-patch+json")


# ---------------------------------------------------------------- runtimed


def _ready(api: Api, gateway: Gateway, kill: Callable[[str], None]) -> str:
    name = declare(api)
    pod = api.ready(name, seconds=SECONDS)["status"]["assignedPod"]
    kill(pod)
    served(gateway, state(api, name))
    assert state(api, name)["attempt"] == 1, "a restart of runtimed is no lost attempt"
    return name


def _cancel(api: Api, gateway: Gateway, kill: Callable[[str], None]) -> str:
    name = declare(api)
    pod = api.ready(name, seconds=SECONDS)["status"]["assignedPod"]
    cancelled(api, name)
    kill(pod)
    ended(api, name, "Cancelled")
    return name


def _delete(api: Api, gateway: Gateway, kill: Callable[[str], None]) -> str:
    name = declare(api)
    pod = api.ready(name, seconds=SECONDS)["status"]["assignedPod"]
    api.http.delete(f"{RUNS.format('default')}/{name}")
    kill(pod)
    eventually("it is gone", lambda: api.run(name) is None, SECONDS)
    return name


def _scheduled(api: Api, gateway: Gateway, kill: Callable[[str], None]) -> str:
    """Killed as soon as it is known where the Run goes: before the claim, in it, or a little after."""
    name = declare(api, retryPolicy={"maxAttempts": 3})
    pod = eventually("it is assigned", lambda: state(api, name).get("assignedPod"))
    kill(pod)
    served(gateway, api.ready(name, seconds=SECONDS)["status"])
    return name


def _in_a_call(api: Api, gateway: Gateway, kill: Callable[[str], None]) -> str:
    name = declare(api)
    status, answers = api.ready(name, seconds=SECONDS)["status"], []
    caller = threading.Thread(target=lambda: answers.append(call(gateway, status["endpoint"]["url"], seconds=6)))
    caller.start()
    time.sleep(1.0)
    kill(status["assignedPod"])
    caller.join(SECONDS)
    assert answers[0].headers["x-kruntime-outcome"] in ("unknown", "cancelled"), answers[0].text
    assert answers[0].headers["x-kruntime-retry-safe"] == "false"
    served(gateway, state(api, name))
    return name


def _in_a_task(api: Api, gateway: Gateway, kill: Callable[[str], None]) -> str:
    name = task(api, "import time; time.sleep(8)")
    running = eventually("it runs", lambda: state(api, name) if reason(state(api, name)) == "TaskRunning" else None)
    kill(running["assignedPod"])
    assert ended(api, name, "Succeeded")["attempt"] == 1, "the task went on, and its end was found out"
    return name


POINTS = [_scheduled, _ready, _in_a_call, _in_a_task, _cancel, _delete]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__.strip("_"))
def test_runtimed_is_killed(faults: Killer, api: Api, gateway: Gateway, point: Any) -> None:
    name = point(api, gateway, lambda pod: faults.kill(pod, "runtimed"))
    api.delete(name)


# ---------------------------------------------------------------- Runtime Server


def test_the_runtime_server_is_killed_and_the_attempt_goes_on(faults: Killer, api: Api, gateway: Gateway) -> None:
    name = declare(api)
    status = api.ready(name, seconds=SECONDS)["status"]
    faults.kill(status["assignedPod"], "runtime")
    served(gateway, status)
    again = eventually("Ready", lambda: state(api, name) if state(api, name)["phase"] == "Ready" else None, SECONDS)
    assert (again["attempt"], again["assignedPodUID"]) == (1, status["assignedPodUID"])
    assert restarts(faults.cluster.json("pod", status["assignedPod"], "-n", "default")) >= 1
    api.delete(name)


def test_a_task_that_the_runtime_server_lost_has_failed_its_attempt(faults: Killer, api: Api) -> None:
    name = task(api, "import time; time.sleep(30)")
    running = eventually("it runs", lambda: state(api, name) if reason(state(api, name)) == "TaskRunning" else None)
    faults.kill(running["assignedPod"], "runtime")
    last = ended(api, name, "Failed")
    assert (reason(last), last["attempt"]) == ("RetriesExhausted", 1)
    assert "RuntimeServerFailed" in last["message"]
    api.delete(name)


# ---------------------------------------------------------------- operator and API server


def test_the_operator_is_killed_while_it_reassigns(
    faults: Killer, api: Api, gateway: Gateway, release: Cluster
) -> None:
    """What it had begun is finished by whoever leads next, once."""
    name = declare(api, retryPolicy={"maxAttempts": 3, "backoff": "1s"})
    status = api.ready(name, seconds=SECONDS)["status"]
    (operator,) = release.pods("app.kubernetes.io/name=kruntimes-operator")[:1]
    release.kubectl("delete", "pod", status["assignedPod"], "-n", "default", "--grace-period=0", "--force")
    eventually("its loss is seen", lambda: reason(state(api, name)) != "FunctionRegistered", SECONDS)
    faults.kill(operator["metadata"]["name"], "operator", NAMESPACE)
    again = eventually(
        "it is Ready elsewhere",
        lambda: state(api, name) if state(api, name)["phase"] == "Ready" and state(api, name)["attempt"] == 2 else None,
        SECONDS,
    )
    assert again["assignedPodUID"] != status["assignedPodUID"]
    served(gateway, again)
    api.delete(name)
    release.runtime_ready("python", 2)


@pytest.mark.parametrize("fault", ["STOP", "KILL"])
def test_calls_go_on_without_the_api_server(faults: Killer, api: Api, gateway: Gateway, fault: str) -> None:
    """Whoever was let in lately is served, others are refused safely, and nothing is lost by its return."""
    name = declare(api)
    status = api.ready(name, seconds=SECONDS)["status"]
    served(gateway, status)
    signal_control_plane(fault, "kube-apiserver")
    try:
        for _ in range(5):
            answer = call(gateway, status["endpoint"]["url"])
            assert answer.status_code == 200 or answer.headers["x-kruntime-retry-safe"] == "true", answer.text
            time.sleep(1.0)
    finally:
        if fault == "STOP":
            signal_control_plane("CONT", "kube-apiserver")
        eventually("it answers", lambda: _answers(api), SECONDS)
    assert (state(api, name)["phase"], state(api, name)["attempt"]) == ("Ready", 1)
    served(gateway, status)
    api.delete(name)


def _answers(api: Api) -> bool:
    try:
        return api.http.get("/readyz").is_success
    except httpx.HTTPError:
        return False


# ---------------------------------------------------------------- ends by time and by failure


def test_attempts_run_out(stack: Any, api: Api) -> None:
    name = task(api, "raise SystemExit(3)", retryPolicy={"maxAttempts": 2, "backoff": "1s"})
    last = ended(api, name, "Failed")
    assert (reason(last), last["attempt"]) == ("RetriesExhausted", 2)
    api.delete(name)


def test_lifetime_and_idleness_end_a_run(stack: Any, api: Api) -> None:
    lived, idle = declare(api, timeout="4s"), declare(api, function={"idleTimeoutSeconds": 2})
    assert reason(ended(api, lived, "Timeout")) == "LifetimeTimeout"
    assert reason(ended(api, idle, "Timeout")) == "IdleTimeout"
    for name in (lived, idle):
        api.delete(name)


def test_many_runs_at_once_are_drained_through(stack: Any, api: Api) -> None:
    """More than twelve times what there is room for, and every one has its turn."""
    names = [task(api, "pass") for _ in range(MANY)]
    most = 0

    def over() -> bool:
        nonlocal most
        found = api.get(RUNS.format("default"))
        assert found is not None
        mine = [one.get("status", {}) for one in found["items"] if one["metadata"]["name"] in set(names)]
        taken = [one["assignedPodUID"] for one in mine if one.get("assignedPodUID") and one["phase"] not in ENDED]
        most = max([most, *(taken.count(uid) for uid in set(taken))])
        return sum(one.get("phase") in ENDED for one in mine) == MANY

    eventually("all have ended", over, 240)
    assert most <= CAPACITY // 2, "no Pod held more than it has room for"
    phases = {name: state(api, name)["phase"] for name in names}
    assert set(phases.values()) == {"Succeeded"}, json.dumps(phases)
    for name in names:
        api.http.delete(f"{RUNS.format('default')}/{name}")
