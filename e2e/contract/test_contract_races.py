"""Writers at the same time: who wins, and that nothing is lost."""

import threading
from collections.abc import Callable

import pytest
from contract.client import JSON_PATCH, Answer, Api, Json, at
from contract.objects import make, obj

WRITERS = 6


def together(api: Api, act: Callable[[Api, int], Answer]) -> list[Answer]:
    """What *act* answers to each of several writers with connections of their own, who begin at the same moment."""
    gate, answers = threading.Barrier(WRITERS), {}

    def run(writer: int) -> None:
        client = api.another()
        try:
            client.get("/version")
            gate.wait(30)
            answers[writer] = act(client, writer)
        finally:
            client.close()

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[writer] for writer in range(WRITERS)]


def codes(answers: list[Answer]) -> list[int]:
    """Their codes, sorted."""
    return sorted(answer.code for answer in answers)


@pytest.mark.parametrize("resource", ["leases", "runs"])
def test_one_creation_of_a_name_wins(api: Api, ns: str, name: str, resource: str) -> None:
    answers = together(api, lambda client, _: client.create(at(resource, ns), obj(resource, name)))
    assert codes(answers) == [201] + [409] * (WRITERS - 1)


def test_one_put_of_a_version_wins(api: Api, ns: str, name: str) -> None:
    """How an election is decided."""
    made = make(api, "leases", ns, name)

    def take(client: Api, writer: int) -> Answer:
        body = {**made, "spec": {**made["spec"], "holderIdentity": str(writer)}}
        return client.replace(at("leases", ns, name), body)

    answers = together(api, take)
    assert codes(answers) == [200] + [409] * (WRITERS - 1)
    winner = next(i for i, answer in enumerate(answers) if answer.code == 200)
    assert api.get(at("leases", ns, name)).ok(200)["spec"]["holderIdentity"] == str(winner)


def test_one_tested_patch_wins(api: Api, ns: str, name: str) -> None:
    """How a Run is assigned and claimed."""
    make(api, "runs", ns, name)
    path = at("runs", ns, name, "status")
    api.patch(path, {"status": {"phase": "Pending"}}).ok(200)

    def assign(client: Api, writer: int) -> Answer:
        ops: list[Json] = [
            {"op": "test", "path": "/status/phase", "value": "Pending"},
            {"op": "replace", "path": "/status/phase", "value": "Scheduled"},
            {"op": "add", "path": "/status/assignedPod", "value": f"p-{writer}"},
            {"op": "add", "path": "/status/assignedPodUID", "value": f"u-{writer}"},
        ]
        return client.patch(path, ops, type=JSON_PATCH)

    assert codes(together(api, assign)) == [200] + [422] * (WRITERS - 1)


def test_patches_of_different_fields_all_come_through(api: Api, ns: str, name: str) -> None:
    """A patch without a version is tried again by the server itself when someone else was quicker."""
    make(api, "configmaps", ns, name)
    path = at("configmaps", ns, name)
    assert codes(together(api, lambda client, i: client.patch(path, {"data": {f"k{i}": "v"}}))) == [200] * WRITERS
    assert set(api.get(path).ok(200)["data"]) == {"a", *(f"k{i}" for i in range(WRITERS))}


def test_applies_of_different_conditions_all_come_through(api: Api, ns: str, name: str) -> None:
    make(api, "widgets", ns, name)
    path = at("widgets", ns, name, "status")

    def apply(client: Api, writer: int) -> Answer:
        body = {
            "apiVersion": "contract.example/v1",
            "kind": "Widget",
            "metadata": {"name": name},
            "status": {"conditions": [{"type": f"C{writer}", "status": "True"}]},
        }
        return client.apply(path, body, manager=f"m{writer}")

    assert codes(together(api, apply)) == [200] * WRITERS
    conditions = api.get(path).ok(200)["status"]["conditions"]
    assert {c["type"] for c in conditions} == {f"C{i}" for i in range(WRITERS)}


def test_one_deletion_with_a_version_wins(api: Api, ns: str, name: str) -> None:
    version = make(api, "configmaps", ns, name)["metadata"]["resourceVersion"]
    options = {"preconditions": {"resourceVersion": version}}
    answers = together(api, lambda client, _: client.delete(at("configmaps", ns, name), options))
    assert codes(answers) == [200] + [404] * (WRITERS - 1)


def test_generated_names_differ(api: Api, ns: str) -> None:
    body = obj("configmaps", "x")
    body["metadata"] = {"generateName": "race-"}
    answers = together(api, lambda client, _: client.create(at("configmaps", ns), body))
    assert len({answer.ok(201)["metadata"]["name"] for answer in answers}) == WRITERS


def test_one_binding_wins(api: Api, ns: str, name: str) -> None:
    make(api, "pods", ns, name)

    def bind(client: Api, writer: int) -> Answer:
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": f"node-{writer}"}}
        return client.create(at("pods", ns, name, "binding"), body)

    assert codes(together(api, bind)) == [201] + [409] * (WRITERS - 1)
