"""What the API server takes and refuses of a Runtime, and in which words (design §4)."""

from typing import Any

import pytest
from tests.api.api_server import MERGE, RUNTIME, Json, Server, merged

CONTAINER = {"name": "runtime", "image": "example.org/python:1"}
FULL: Json = {
    "replicas": 3,
    "port": 9091,
    "daemonImage": "example.org/runtimed:1",
    "capacity": {"resources": {"runs": "8", "gpu": 1}},
    "workspace": {"persistentVolumeClaim": {"claimName": "shared"}},
    "template": {
        "metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}, "creationTimestamp": None},
        "spec": {
            "serviceAccountName": "builder",
            "terminationGracePeriodSeconds": 60,
            "restartPolicy": "Always",
            "hostPID": False,
            "initContainers": [{"name": "prepare", "image": "example.org/prepare:1", "command": ["true"]}],
            "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "containers": [
                CONTAINER | {"args": ["--port=9091"], "resources": {"limits": {"cpu": "2"}}},
                {"name": "proxy", "image": "example.org/proxy:1"},
            ],
        },
    },
}


def case(spec: Json, *said: str, id: str) -> Any:
    """One Runtime, and the words of which each must stand in the refusal."""
    return pytest.param(merged(RUNTIME, {"spec": spec}), said, id=id)


def pod(**fields: object) -> Json:
    return {"template": {"spec": fields}}


def named(name: str, *said: str) -> Any:
    return pytest.param(merged(RUNTIME, {"metadata": {"generateName": None, "name": name}}), said, id=f"name-{name}")


ACCEPTED = [
    case({}, id="the-least"),
    case(FULL, id="everything"),
    case(pod(containers=[CONTAINER | {"image": "i" * 2048}]), id="longest-image"),
    case({"workspace": {"emptyDir": {}}}, id="workspace-in-the-pod"),
    case({"capacity": {}}, id="capacity-left-to-us"),
    case({"capacity": {"resources": {"runs": 1}}}, id="exclusive"),
    case(pod(ephemeralContainers=[]), id="no-ephemeral-container"),
    case(pod(shareProcessNamespace=False), id="namespace-not-shared"),
    case({"port": 65535}, id="highest-port"),
    named("python-3"),
    named("p" * 63),
]

REFUSED = [
    case({"template": None}, "spec.template: Required", id="no-template"),
    case({"template": {"spec": None}}, "spec.template.spec: Required", id="template-without-a-spec"),
    case(pod(containers=None), "spec.template.spec.containers: Required", id="no-containers-field"),
    case(pod(containers=[]), "spec.template.spec.containers", "at least 1 items", id="no-container"),
    case(
        pod(containers=[{"name": "proxy", "image": "i"}, CONTAINER]),
        "spec.template.spec.containers[0].name must be 'runtime'",
        id="runtime-is-not-first",
    ),
    case(pod(containers=[{"image": "i"}]), "spec.template.spec.containers[0].name: Required", id="no-name"),
    case(pod(containers=[{"name": "runtime"}]), "spec.template.spec.containers[0].image is required", id="no-image"),
    case(pod(containers=[CONTAINER | {"image": ""}]), "containers[0].image", "at least 1", id="empty-image"),
    case(pod(containers=[CONTAINER | {"image": "i" * 2049}]), "containers[0].image: Too long", id="long-image"),
    case(pod(containers=[CONTAINER, CONTAINER]), "spec.template.spec.containers[1]: Duplicate", id="runtime-twice"),
    case(
        pod(containers=[CONTAINER, {"name": "runtimed", "image": "i"}]),
        "must not have a container named 'runtimed'",
        id="a-runtimed-of-its-own",
    ),
    case(
        pod(initContainers=[{"name": "runtimed", "image": "i"}]),
        "must not have a container named 'runtimed'",
        id="a-runtimed-of-its-own-as-init-container",
    ),
    *(
        case(pod(volumes=[{"name": name, "emptyDir": {}}]), "spec.template.spec.volumes must not use", id=f"{name}")
        for name in ("workspace", "sockets", "kruntimes-token", "kruntimes-ca")
    ),
    *(
        case(pod(restartPolicy=policy), "restartPolicy: Unsupported", 'supported values: "Always"', id=f"{policy}")
        for policy in ("Never", "OnFailure")
    ),
    case(pod(ephemeralContainers=[{"name": "debug"}]), "ephemeralContainers must not be set", id="ephemeral"),
    case(pod(shareProcessNamespace=True), "shareProcessNamespace must not be true", id="shared-processes"),
    case(pod(hostPID=True), "hostPID must not be true", id="host-processes"),
    case(pod(hostPID="true"), "hostPID", "of type boolean", id="host-processes-as-text"),
    case({"template": {"metadata": {"labels": {"a": 1}}}}, "labels.a", "of type string", id="label-is-a-number"),
    case({"port": 0}, "spec.port", "or equal to 1", id="port-0"),
    case({"port": 65536}, "spec.port", "or equal to 65535", id="port-too-high"),
    case({"replicas": 0}, "spec.replicas", "or equal to 1", id="no-replica"),
    case({"daemonImage": "i" * 2049}, "spec.daemonImage: Too long", id="daemon-image-too-long"),
    case({"capacity": {"resources": {"runs": "0"}}}, "capacity.resources.runs must be at least 1", id="no-runs"),
    *(
        case({"capacity": {"resources": {"gpu": amount}}}, "resources must hold whole numbers", id=f"gpu-{amount!r}")
        for amount in (-1, "0.5", "many")
    ),
    case({"workspace": {}}, "spec.workspace", "at least 1 properties", id="workspace-without-a-source"),
    case({"workspace": {"emptyDir": {}, "nfs": {}}}, "spec.workspace: Too many: 2", id="workspace-with-two-sources"),
    case({"scale": 3}, 'unknown field "spec.scale"', id="unknown-field"),
    *(named(name, "metadata.name of a Runtime must be a name for a Service") for name in ("a.b", "3a", "p" * 64)),
]


@pytest.mark.parametrize(("runtime", "said"), ACCEPTED)
def test_accepted(server: Server, runtimes: str, runtime: Json, said: tuple[str, ...]) -> None:
    server.done("POST", runtimes, runtime, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize(("runtime", "said"), REFUSED)
def test_refused_in_words_that_name_the_field(
    server: Server, runtimes: str, runtime: Json, said: tuple[str, ...]
) -> None:
    answer = server.call("POST", runtimes, runtime, dryRun="All", fieldValidation="Strict")
    assert answer["kind"] == "Status" and answer["code"] in (400, 422), answer
    for words in said:
        assert words in answer["message"]


def test_defaults(server: Server, runtimes: str) -> None:
    made = server.done("POST", runtimes, RUNTIME, dryRun="All")["spec"]
    assert (made["port"], made["replicas"], made["capacity"]) == (9091, 1, {"resources": {"runs": "2"}})
    named = merged(RUNTIME, {"spec": {"capacity": {"resources": {"gpu": 1}}}})
    assert server.done("POST", runtimes, named, dryRun="All")["spec"]["capacity"] == {"resources": {"gpu": 1}}


def test_a_template_is_kept_as_it_is(server: Server, runtimes: str) -> None:
    made = server.done("POST", runtimes, merged(RUNTIME, {"spec": FULL}), dryRun="All")["spec"]
    assert made["template"]["spec"] == FULL["template"]["spec"]
    assert made["workspace"] == FULL["workspace"]


def test_everything_of_a_runtime_may_change(server: Server, runtimes: str) -> None:
    made = server.done("POST", runtimes, RUNTIME)
    server.done("PUT", f"{runtimes}/{made['metadata']['name']}", merged(made, {"spec": FULL}))


def test_scale(server: Server, runtimes: str) -> None:
    name = server.done("POST", runtimes, RUNTIME)["metadata"]["name"]
    scale = server.done("PATCH", f"{runtimes}/{name}/scale", {"spec": {"replicas": 5}}, kind=MERGE)
    assert scale["spec"]["replicas"] == 5 and scale["status"]["replicas"] == 0
    server.done("PATCH", f"{runtimes}/{name}/status", {"status": {"readyReplicas": 4}}, kind=MERGE)
    assert server.done("GET", f"{runtimes}/{name}/scale")["status"]["replicas"] == 4
    refused = server.call("PATCH", f"{runtimes}/{name}/scale", {"spec": {"replicas": 0}}, kind=MERGE)
    assert refused["code"] == 422 and "spec.replicas" in refused["message"]


def test_columns_of_runtimes(server: Server, runtimes: str) -> None:
    name = server.done("POST", runtimes, merged(RUNTIME, {"spec": {"replicas": 2}}))["metadata"]["name"]
    server.done("PATCH", f"{runtimes}/{name}/status", {"status": {"readyReplicas": 1}}, kind=MERGE)
    columns, rows = server.table(runtimes)
    assert columns == ["Name", "Image", "Replicas", "Ready", "Age"]
    assert rows[name][:4] == [name, "example.org/python:1", 2, 1]


def test_applying_a_runtime_twice_changes_nothing(server: Server, runtimes: str) -> None:
    wanted = merged(RUNTIME, {"metadata": {"generateName": None, "name": "twice"}, "spec": FULL})
    assert server.apply(f"{runtimes}/twice", wanted) == server.apply(f"{runtimes}/twice", wanted)


def test_another_manager_may_own_a_volume_of_the_template(server: Server, runtimes: str) -> None:
    wanted = merged(RUNTIME, {"metadata": {"generateName": None, "name": "shared"}})
    server.apply(f"{runtimes}/shared", wanted, manager="one")
    volume = {"template": {"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}}}
    both = server.apply(f"{runtimes}/shared", wanted | {"spec": volume}, manager="two", force=False)
    assert both["spec"]["template"]["spec"] == wanted["spec"]["template"]["spec"] | volume["template"]["spec"]
