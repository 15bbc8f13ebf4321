"""What may change of a Run, by whom it is written, and how it is found (design §4)."""

import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.api_server import FUNCTION, GROUP, MERGE, TASK, Json, Server, merged

FULL = merged(
    FUNCTION,
    {
        "spec": {
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "timeout": "5m",
            "retryPolicy": {"maxAttempts": 2, "backoff": "1s"},
            "resources": {"requests": {"runs": 1}},
        }
    },
)
BARE = merged(FUNCTION, {"spec": {"source": None}})
NOW = "2026-03-01T12:00:00Z"


def change(base: Json, spec: Json, said: str, *, id: str) -> Any:
    return pytest.param(base, spec, said, id=id)


REFUSED = [
    change(FUNCTION, {"runtime": "bash"}, "spec.runtime is immutable", id="runtime"),
    change(FUNCTION, {"mode": {"function": {"handler": "b.b"}}}, "spec.mode is immutable", id="handler"),
    change(FUNCTION, {"mode": {"function": {"isolation": "Fork"}}}, "spec.mode is immutable", id="isolation"),
    change(FUNCTION, {"mode": {"function": {"idleTimeoutSeconds": 9}}}, "spec.mode is immutable", id="idle-added"),
    change(TASK, {"mode": {"task": {"args": ["a"]}}}, "spec.mode is immutable", id="args-of-a-task"),
    change(TASK, {"mode": {"task": None, "function": {"handler": "a.b"}}}, "spec.mode is immutable", id="other-mode"),
    change(FUNCTION, {"source": {"inline": "pass"}}, "spec.source is immutable", id="inline"),
    change(TASK, {"source": {"inline": "false"}}, "spec.source is immutable", id="inline-of-a-task"),
    change(FUNCTION, {"source": {"inlinePath": "b.py"}}, "spec.source is immutable", id="inline-path"),
    change(FUNCTION, {"source": None}, "spec.source is immutable", id="source-removed"),
    change(BARE, {"source": FUNCTION["spec"]["source"]}, "spec.source is immutable", id="source-added"),
    change(FULL, {"env": [{"name": "A", "value": "2"}]}, "spec.env is immutable", id="env"),
    change(FULL, {"env": None}, "spec.env is immutable", id="env-removed"),
    change(FULL, {"env": []}, "spec.env is immutable", id="env-emptied"),
    change(FUNCTION, {"env": [{"name": "A"}]}, "spec.env is immutable", id="env-added"),
    change(FUNCTION, {"env": []}, "spec.env is immutable", id="empty-env-added"),
    change(FULL, {"timeout": "6m"}, "spec.timeout is immutable", id="timeout"),
    change(FULL, {"timeout": "300s"}, "spec.timeout is immutable", id="timeout-in-another-spelling"),
    change(FULL, {"timeout": None}, "spec.timeout is immutable", id="timeout-removed"),
    change(FUNCTION, {"timeout": "6m"}, "spec.timeout is immutable", id="timeout-added"),
    change(FULL, {"retryPolicy": {"maxAttempts": 3}}, "spec.retryPolicy is immutable", id="attempts"),
    change(FULL, {"retryPolicy": None}, "spec.retryPolicy is immutable", id="retry-policy-removed"),
    change(FUNCTION, {"retryPolicy": {}}, "spec.retryPolicy is immutable", id="retry-policy-added"),
    change(FULL, {"resources": {"requests": {"runs": 2}}}, "spec.resources is immutable", id="resources"),
    change(FULL, {"resources": {"requests": {"gpu": 1}}}, "spec.resources is immutable", id="resource-added"),
    change(FULL, {"resources": None}, "spec.resources is immutable", id="resources-removed"),
    change(FUNCTION, {"resources": {}}, "spec.resources is immutable", id="resources-added"),
    change(
        merged(FUNCTION, {"spec": {"cancelRequested": True}}),
        {"cancelRequested": False},
        "spec.cancelRequested cannot be taken back",
        id="cancel-taken-back",
    ),
    change(
        merged(FUNCTION, {"spec": {"cancelRequested": True}}),
        {"cancelRequested": None},
        "spec.cancelRequested cannot be taken back",
        id="cancel-removed",
    ),
]

ACCEPTED = [
    pytest.param(FULL, {"cancelRequested": True}, id="cancel"),
    pytest.param(merged(FULL, {"spec": {"cancelRequested": False}}), {"cancelRequested": True}, id="cancel-from-false"),
    pytest.param(merged(FULL, {"spec": {"cancelRequested": False}}), {"cancelRequested": None}, id="no-cancel-removed"),
    pytest.param(FULL, {"ttlSecondsAfterFinished": 60}, id="ttl-added"),
    pytest.param(merged(FULL, {"spec": {"ttlSecondsAfterFinished": 60}}), {"ttlSecondsAfterFinished": 5}, id="ttl"),
    pytest.param(merged(FULL, {"spec": {"ttlSecondsAfterFinished": 60}}), {"ttlSecondsAfterFinished": None}, id="keep"),
    pytest.param(
        merged(
            FULL,
            {
                "spec": {
                    "source": {"inline": "x" * 262144},
                    "env": [{"name": f"V{i}", "value": "v" * 2000} for i in range(256)],
                }
            },
        ),
        {"ttlSecondsAfterFinished": 60},
        id="a-change-of-the-largest-run-is-within-the-budget-of-its-rules",
    ),
]


@pytest.mark.parametrize(("base", "spec", "said"), REFUSED)
def test_execution_inputs_do_not_change(server: Server, runs: str, base: Json, spec: Json, said: str) -> None:
    made = server.done("POST", runs, base)
    path = f"{runs}/{made['metadata']['name']}"
    put = server.call("PUT", path, merged(made, {"spec": spec}))
    assert put["code"] == 422 and said in put["message"]
    patched = server.call("PATCH", path, {"spec": spec}, kind=MERGE)
    assert patched["code"] == 422 and said in patched["message"]


@pytest.mark.parametrize(("base", "spec"), ACCEPTED)
def test_what_may_change(server: Server, runs: str, base: Json, spec: Json) -> None:
    made = server.done("POST", runs, base)
    server.done("PATCH", f"{runs}/{made['metadata']['name']}", {"spec": spec}, kind=MERGE)


def test_a_client_that_does_not_know_isolation_may_write_back_what_it_read(server: Server, runs: str) -> None:
    made = server.done("POST", runs, FUNCTION)
    del made["spec"]["mode"]["function"]["isolation"]
    put = server.done("PUT", f"{runs}/{made['metadata']['name']}", made)
    assert put["spec"]["mode"]["function"]["isolation"] == "Worker"


# ---------------------------------------------------------------- status

ASSIGNED = {"assignedPod": "python-1", "assignedPodUID": "1f0e"}
CONDITION = {
    "type": "Ready",
    "status": "False",
    "reason": "Scheduled",
    "message": "",
    "lastTransitionTime": NOW,
}


def endpoint(**fields: object) -> Json:
    return {"endpoint": {"protocol": "HTTPS", "url": "https://gateway/v1"} | fields}


def pem(size: int) -> str:
    return base64.b64encode(b"-" * size).decode()


STATUS_ACCEPTED = [
    pytest.param(ASSIGNED | {"phase": "Scheduled"}, id="assigned"),
    pytest.param({"assignedPod": "", "assignedPodUID": ""}, id="cleared-by-empty-text"),
    pytest.param(endpoint(), id="endpoint"),
    pytest.param(endpoint(protocol="HTTP"), id="protocol-http-is-in-the-enumeration"),
    pytest.param(endpoint(url="u" * 2048), id="longest-url"),
    pytest.param(endpoint(caBundle=pem(16384)), id="largest-bundle"),
    pytest.param({"message": "m" * 4096}, id="longest-message"),
    pytest.param({"attempt": 1, "startTime": NOW, "completionTime": NOW}, id="times"),
    pytest.param({"outputs": {f"k{i}": "v" for i in range(64)}}, id="most-outputs"),
    pytest.param({"outputs": {"k" * 128: "v" * 8192}}, id="longest-output"),
    pytest.param({"conditions": [CONDITION | {"type": f"T{i}"} for i in range(16)]}, id="most-conditions"),
    *(
        pytest.param({"phase": phase}, id=phase)
        for phase in ("Pending", "Scheduled", "Running", "Ready", "Succeeded", "Failed", "Timeout", "Cancelled")
    ),
]

STATUS_REFUSED = [
    pytest.param({"phase": "Done"}, "status.phase: Unsupported value", id="phase"),
    pytest.param({"assignedPod": "a"}, "must be set and cleared together", id="pod-without-uid"),
    pytest.param({"assignedPodUID": "a"}, "must be set and cleared together", id="uid-without-pod"),
    pytest.param({"assignedPod": "", "assignedPodUID": "a"}, "must be set and cleared together", id="half-cleared"),
    pytest.param({"assignedPod": "a" * 254, "assignedPodUID": "a"}, "status.assignedPod: Too long", id="pod-too-long"),
    pytest.param({"assignedPod": "a", "assignedPodUID": "a" * 254}, "assignedPodUID: Too long", id="uid-too-long"),
    pytest.param(endpoint(protocol="GRPC"), "status.endpoint.protocol: Unsupported", id="protocol"),
    pytest.param(endpoint(url="u" * 2049), "status.endpoint.url: Too long", id="url-too-long"),
    pytest.param(endpoint(url=None), "status.endpoint.url: Required", id="endpoint-without-url"),
    pytest.param(endpoint(caBundle=pem(16385)), "must decode to at most 16384 bytes", id="bundle-one-byte-too-large"),
    pytest.param(endpoint(caBundle=pem(17000)), "status.endpoint.caBundle: Too long", id="bundle-too-large"),
    pytest.param(endpoint(caBundle="%%%"), "status.endpoint.caBundle", id="bundle-is-not-base64"),
    pytest.param({"message": "m" * 4097}, "status.message: Too long", id="message-too-long"),
    pytest.param({"attempt": -1}, "status.attempt", id="attempt-below-zero"),
    pytest.param({"startTime": "yesterday"}, "status.startTime", id="start-time"),
    pytest.param({"outputs": {f"k{i}": "v" for i in range(65)}}, "status.outputs: Too many", id="outputs-too-many"),
    pytest.param({"outputs": {"k" * 129: "v"}}, "keys of 1 to 128 bytes", id="output-key-too-long"),
    pytest.param({"outputs": {"é" * 65: "v"}}, "keys of 1 to 128 bytes", id="output-key-counts-bytes"),
    pytest.param({"outputs": {"": "v"}}, "keys of 1 to 128 bytes", id="output-key-empty"),
    pytest.param({"outputs": {"k": "v" * 8193}}, "status.outputs.k: Too long", id="output-too-long"),
    pytest.param({"outputs": {"k": "é" * 4097}}, "values of at most 8192 bytes", id="output-counts-bytes"),
    pytest.param({"outputs": {"k": 1}}, "status.outputs.k", id="output-is-a-number"),
    pytest.param({"conditions": [CONDITION, CONDITION]}, "status.conditions[1]: Duplicate", id="condition-twice"),
    pytest.param(
        {"conditions": [CONDITION | {"type": f"T{i}"} for i in range(17)]},
        "status.conditions: Too many",
        id="conditions-too-many",
    ),
    pytest.param({"conditions": [CONDITION | {"status": "Maybe"}]}, "conditions[0].status: Unsupported", id="maybe"),
    pytest.param({"conditions": [CONDITION | {"reason": ""}]}, "status.conditions[0].reason", id="no-reason"),
    pytest.param({"conditions": [CONDITION | {"reason": "not so"}]}, "must be one word in CamelCase", id="two-words"),
    pytest.param({"conditions": [{"type": "Ready", "status": "True"}]}, "reason: Required", id="half-a-condition"),
]


@pytest.fixture(scope="module")
def run(server: Server, runs: str) -> str:
    """The path of one Run that no test here writes to for good."""
    return f"{runs}/{server.done('POST', runs, FUNCTION)['metadata']['name']}"


@pytest.mark.parametrize("status", STATUS_ACCEPTED)
def test_status_accepted(server: Server, run: str, status: Json) -> None:
    server.done("PATCH", f"{run}/status", {"status": status}, kind=MERGE, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize(("status", "said"), STATUS_REFUSED)
def test_status_refused(server: Server, run: str, status: Json, said: str) -> None:
    answer = server.call(
        "PATCH", f"{run}/status", {"status": status}, kind=MERGE, dryRun="All", fieldValidation="Strict"
    )
    assert answer["code"] == 422 and said in answer["message"]


def test_a_creator_cannot_write_status_and_its_first_writer_begins_at_pending(server: Server, runs: str) -> None:
    made = server.done("POST", runs, FUNCTION | {"status": {"phase": "Ready", "attempt": 7}})
    path = f"{runs}/{made['metadata']['name']}"
    assert "status" not in made and "status" not in server.done("GET", path)
    written = server.done("PATCH", f"{path}/status", {"status": {"message": "seen"}}, kind=MERGE)
    assert written["status"] == {"phase": "Pending", "message": "seen"}


def test_spec_and_status_have_each_their_own_door(server: Server, runs: str) -> None:
    name = server.done("POST", runs, FUNCTION)["metadata"]["name"]
    both = {"spec": {"cancelRequested": True}, "status": {"phase": "Scheduled", **ASSIGNED}}
    written = server.done("PATCH", f"{runs}/{name}/status", both, kind=MERGE)
    assert written["status"] == both["status"] and "cancelRequested" not in written["spec"]
    assert written["metadata"]["generation"] == 1
    written = server.done("PATCH", f"{runs}/{name}", both | {"status": {"phase": "Failed"}}, kind=MERGE)
    assert written["status"] == both["status"] and written["spec"]["cancelRequested"] is True
    assert written["metadata"]["generation"] == 2


def test_assignment_is_cleared_in_one_write(server: Server, runs: str) -> None:
    name = server.done("POST", runs, FUNCTION)["metadata"]["name"]
    status = f"{runs}/{name}/status"
    server.done("PATCH", status, {"status": {"phase": "Scheduled", **ASSIGNED}}, kind=MERGE)
    half = server.call("PATCH", status, {"status": {"assignedPod": None}}, kind=MERGE)
    assert half["code"] == 422
    both = server.done("PATCH", status, {"status": {"assignedPod": None, "assignedPodUID": None}}, kind=MERGE)
    assert "assignedPod" not in both["status"]


# ---------------------------------------------------------------- finding Runs


@pytest.fixture
def found(server: Server) -> Iterator[str]:
    """A namespace of its own with three Runs: fresh, assigned to a Pod, and of another Runtime and Pending."""
    name = f"api-{uuid.uuid4().hex[:8]}"
    server.done("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    path = f"{GROUP}/namespaces/{name}/runs"
    for run, base in (("fresh", FUNCTION), ("held", FUNCTION), ("other", TASK)):
        server.done("POST", path, merged(base, {"metadata": {"generateName": None, "name": run}}))
    server.done("PATCH", f"{path}/held/status", {"status": {"phase": "Ready", **ASSIGNED}}, kind=MERGE)
    server.done("PATCH", f"{path}/other/status", {"status": {"attempt": 0}}, kind=MERGE)
    yield path
    server.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.runtime=python", {"fresh", "held"}),
        ("spec.runtime=bash", {"other"}),
        ("spec.runtime!=python", {"other"}),
        ("status.phase=Pending", {"other"}),
        ("status.phase=", {"fresh"}),
        ("status.phase=Ready,spec.runtime=python", {"held"}),
        ("status.assignedPodUID=1f0e", {"held"}),
        ("status.assignedPodUID=", {"fresh", "other"}),
        ("metadata.name=other", {"other"}),
    ],
)
def test_lists_and_watches_select_by_field(server: Server, found: str, selector: str, names: set[str]) -> None:
    listed = server.done("GET", found, fieldSelector=selector)
    assert {item["metadata"]["name"] for item in listed["items"]} == names
    query = {"watch": "true", "fieldSelector": selector, "timeoutSeconds": "1", "resourceVersion": "0"}
    seen: set[str] = set()
    with server.http.stream("GET", found, params=query) as events:
        for line in events.iter_lines():
            event = json.loads(line)
            assert event["type"] == "ADDED"
            seen.add(event["object"]["metadata"]["name"])
            if seen == names:
                break
    assert seen == names


def test_a_field_that_is_not_selectable_is_refused(server: Server, found: str) -> None:
    assert server.call("GET", found, fieldSelector="spec.timeout=5m")["code"] == 400


def test_a_run_leaves_a_selection_when_it_is_released(server: Server, found: str) -> None:
    version = server.done("GET", found)["metadata"]["resourceVersion"]
    freed = {"phase": "Pending", "assignedPod": None, "assignedPodUID": None}
    server.done("PATCH", f"{found}/held/status", {"status": freed}, kind=MERGE)
    query = {
        "watch": "true",
        "fieldSelector": "status.assignedPodUID=1f0e",
        "resourceVersion": version,
        "timeoutSeconds": "10",
    }
    with server.http.stream("GET", found, params=query) as events:
        event = json.loads(next(events.iter_lines()))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "held")


# ---------------------------------------------------------------- how kubectl shows and applies them


def test_columns_of_runs(server: Server, found: str) -> None:
    columns, rows = server.table(found)
    assert columns == ["Name", "Phase", "Assigned Pod", "Runtime", "Age"]
    assert rows["held"][:4] == ["held", "Ready", "python-1", "python"]
    assert rows["fresh"][1:4] == [None, None, "python"] and rows["other"][1:4] == ["Pending", None, "bash"]


def test_names_in_discovery(server: Server) -> None:
    kinds = {r["name"]: r for r in server.done("GET", GROUP)["resources"]}
    assert set(kinds) == {"runs", "runs/status", "runtimes", "runtimes/status", "runtimes/scale"}
    for plural, singular, short in (("runs", "run", "rn"), ("runtimes", "runtime", "rt")):
        kind = kinds[plural]
        assert (kind["singularName"], kind["shortNames"], kind["categories"]) == (singular, [short], ["kruntimes"])
        assert kind["namespaced"] is True


@pytest.mark.parametrize("base", [FULL, TASK], ids=["function", "task"])
def test_applying_twice_changes_nothing(server: Server, runs: str, base: Json) -> None:
    name = f"twice-{'function' if base is FULL else 'task'}"
    wanted = merged(base, {"metadata": {"generateName": None, "name": name}})
    first = server.apply(f"{runs}/{name}", wanted)
    second = server.apply(f"{runs}/{name}", wanted)
    assert first["kind"] == "Run" and second == first


def test_two_managers_do_not_overwrite_each_other_unasked(server: Server, runs: str) -> None:
    wanted = merged(FULL, {"metadata": {"generateName": None, "name": "shared"}})
    wanted["spec"]["ttlSecondsAfterFinished"] = 60
    server.apply(f"{runs}/shared", wanted, manager="one")
    other: Json = {k: wanted[k] for k in ("apiVersion", "kind", "metadata")} | {"spec": {"ttlSecondsAfterFinished": 5}}
    conflict = server.apply(f"{runs}/shared", other, manager="two", force=False)
    assert conflict["code"] == 409 and ".spec.ttlSecondsAfterFinished" in conflict["message"]
    forced = server.apply(f"{runs}/shared", other, manager="two")
    assert forced["spec"]["ttlSecondsAfterFinished"] == 5 and forced["spec"]["timeout"] == "5m"


def test_conditions_of_two_managers_live_side_by_side(server: Server, runs: str) -> None:
    name = server.done("POST", runs, FUNCTION)["metadata"]["name"]
    for manager, kind in (("runtimed", "Ready"), ("scheduler", "Backoff"), ("runtimed", "Ready")):
        body = {"apiVersion": "kruntimes.io/v1alpha1", "kind": "Run", "metadata": {"name": name}}
        server.apply(
            f"{runs}/{name}/status", body | {"status": {"conditions": [CONDITION | {"type": kind}]}}, manager=manager
        )
    read = server.done("GET", f"{runs}/{name}")
    assert {c["type"] for c in read["status"]["conditions"]} == {"Ready", "Backoff"}
