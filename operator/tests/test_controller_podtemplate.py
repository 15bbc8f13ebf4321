"""What a Runtime's Pods, ReplicaSet and Service look like."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kruntimes.common.api.views import Runtime
from kruntimes.controller.podtemplate import (
    PodDefaults,
    grace_seconds,
    pod_template,
    replica_set,
    service,
    service_account,
    template_hash,
)

DEFAULTS = PodDefaults(
    gateway_url="https://gateway:8443",
    trust_domain="cluster.local",
    daemon_image="kruntimes:1",
    default_timeout=60,
    max_timeout=900,
    log_level="INFO",
)
MAIN = {"name": "runtime", "image": "py:1", "command": ["python", "-m", "kruntimes.runtime", "--host", "python"]}


def runtime(*, main: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **fields: Any) -> Runtime:
    template = fields.pop("template", {"spec": {"containers": [MAIN | (main or {})], **(spec or {})}})
    return msgspec.convert(
        {
            "metadata": {"name": "python", "namespace": "n", "uid": "runtime-uid"},
            "spec": {"template": template, "replicas": 2} | fields,
        },
        Runtime,
    )


def pod(**fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = pod_template(runtime(**fields), DEFAULTS)["spec"]
    return spec


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}


def by_name(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert len({one["name"] for one in items}) == len(items)
    return {one["name"]: one for one in items}


def test_runtimed_publishes_the_gateways_own_bundle_where_there_is_one() -> None:
    """By default it is that of our own CA, which it has anyway."""
    assert "KRUNTIMES_GATEWAY_CA_FILE" not in env(pod()["initContainers"][0])
    template = pod_template(runtime(), replace(DEFAULTS, own_gateway_ca=True))
    told = env(template["spec"]["initContainers"][0])
    assert told["KRUNTIMES_GATEWAY_CA_FILE"] == "/etc/kruntimes/ca/gateway.crt"


def test_runtimed_is_a_native_sidecar() -> None:
    sidecar = pod()["initContainers"][0]
    assert sidecar["name"] == "runtimed"
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == "kruntimes:1"
    assert sidecar["command"] == ["python", "-m", "kruntimes.runtimed"]
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/healthz", "port": 9090}
    assert {mount["name"] for mount in sidecar["volumeMounts"]} == {
        "sockets",
        "workspace",
        "kruntimes-token",
        "kruntimes-ca",
        "kruntimes-scratch",
    }
    assert env(sidecar) == {
        "KRUNTIMES_NAMESPACE": "metadata.namespace",
        "KRUNTIMES_POD_NAME": "metadata.name",
        "KRUNTIMES_POD_UID": "metadata.uid",
        "KRUNTIMES_POD_IP": "status.podIP",
        "KRUNTIMES_BIND_ADDRESS": "status.podIP",
        "KRUNTIMES_RUNTIME": "python",
        "KRUNTIMES_TRUST_DOMAIN": "cluster.local",
        "KRUNTIMES_GATEWAY_URL": "https://gateway:8443",
        "KRUNTIMES_CA_FILE": "/etc/kruntimes/ca/ca.crt",
        "KRUNTIMES_EXECUTOR_SOCKET": "/run/kruntimes/executor.sock",
        "KRUNTIMES_FUNCTIONS_SOCKET": "/run/kruntimes/functions.sock",
        "KRUNTIMES_WORKSPACE": "/workspace",
        "TMPDIR": "/var/lib/kruntimes",
        "KRUNTIMES_DEFAULT_TIMEOUT": "60",
        "KRUNTIMES_MAX_TIMEOUT": "900",
        "KRUNTIMES_LOG_LEVEL": "INFO",
    }


def test_the_runtime_container_never_gets_a_token() -> None:
    spec = pod()
    main = spec["containers"][0]
    assert spec["automountServiceAccountToken"] is False
    assert {mount["name"] for mount in main["volumeMounts"]} == {"sockets", "workspace"}
    assert main["lifecycle"]["preStop"] == {"httpGet": {"path": "/drain", "port": 9090}}
    assert main["command"] == MAIN["command"]
    assert env(main)["KRUNTIMES_STATE_DIR"] == "/run/kruntimes"


def test_what_the_user_says_stays_and_what_we_need_wins() -> None:
    spec = pod(
        main={
            "env": [{"name": "MINE", "value": "1"}, {"name": "KRUNTIMES_EXECUTOR_SOCKET", "value": "/elsewhere"}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/workspace"}],
            "lifecycle": {"postStart": {"exec": {"command": ["x"]}}, "preStop": {"exec": {"command": ["x"]}}},
            "securityContext": {"runAsUser": 7},
        },
        spec={
            "volumes": [{"name": "data", "emptyDir": {}}],
            "initContainers": [{"name": "fetch", "image": "x"}],
            "nodeSelector": {"a": "b"},
            "serviceAccountName": "mine",
            "securityContext": {"runAsUser": 1000},
            "enableServiceLinks": True,
        },
    )
    main = spec["containers"][0]
    assert env(main)["MINE"] == "1"
    assert env(main)["KRUNTIMES_EXECUTOR_SOCKET"] == "/run/kruntimes/executor.sock"
    assert [mount["mountPath"] for mount in main["volumeMounts"]] == ["/data", "/run/kruntimes", "/workspace"]
    assert set(main["lifecycle"]) == {"postStart", "preStop"}
    assert "httpGet" in main["lifecycle"]["preStop"]
    assert main["securityContext"]["runAsUser"] == 7
    assert main["securityContext"]["allowPrivilegeEscalation"] is False
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert [one["name"] for one in spec["initContainers"]] == ["runtimed", "fetch"]
    assert spec["nodeSelector"] == {"a": "b"}
    assert spec["serviceAccountName"] == "mine"
    assert spec["enableServiceLinks"] is False
    assert set(by_name(spec["volumes"])) == {
        "data", "sockets", "workspace", "kruntimes-token", "kruntimes-ca", "kruntimes-scratch",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(None, {"name": "workspace", "emptyDir": {}}, id="an-empty-folder"),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"name": "workspace", "persistentVolumeClaim": {"claimName": "data"}},
            id="the-users-volume",
        ),
    ],
)
def test_the_workspace(given: dict[str, Any] | None, expected: dict[str, Any]) -> None:
    assert by_name(pod(workspace=given)["volumes"])["workspace"] == expected


@pytest.mark.parametrize(
    ("maximum", "given", "expected"),
    [
        pytest.param(900, None, 913, id="withdrawal-longest-call-drain"),
        pytest.param(0.5, None, 14, id="rounded-up"),
        pytest.param(900, 30, 913, id="a-shorter-one-would-cut-calls-off"),
        pytest.param(900, 3600, 3600, id="a-longer-one-stays"),
    ],
)
def test_the_grace_period(maximum: float, given: int | None, expected: int) -> None:
    defaults = replace(DEFAULTS, default_timeout=0.5, max_timeout=maximum)
    spec = {} if given is None else {"terminationGracePeriodSeconds": given}
    assert pod_template(runtime(spec=spec), defaults)["spec"]["terminationGracePeriodSeconds"] == expected
    assert grace_seconds(defaults) <= expected


UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        pytest.param([], ["not-ready", "unreachable"], id="silent"),
        pytest.param([UNREACHABLE | {"tolerationSeconds": 300}], ["not-ready"], id="one-is-named"),
        pytest.param([{"operator": "Exists"}], [], id="everything-is-tolerated"),
        pytest.param(
            [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], ["not-ready", "unreachable"], id="another"
        ),
        pytest.param(
            [{"operator": "Exists", "effect": "NoSchedule"}], ["not-ready", "unreachable"], id="another-effect"
        ),
    ],
)
def test_tolerations_speak_unless_the_template_does(given: list[dict[str, Any]], added: list[str]) -> None:
    tolerations = pod(spec={"tolerations": given})["tolerations"]
    assert tolerations[: len(given)] == given
    assert [one["key"].removeprefix("node.kubernetes.io/") for one in tolerations[len(given) :]] == added
    assert all(one["tolerationSeconds"] == 30 for one in tolerations[len(given) :])


def test_labels_annotations_and_gate() -> None:
    template = pod_template(
        runtime(
            template={
                "metadata": {"labels": {"team": "a", "runtime": "other"}, "annotations": {"note": "x"}},
                "spec": {"containers": [MAIN]},
            },
            capacity={"resources": {"runs": 4, "gpu": "1"}},
        ),
        DEFAULTS,
    )
    assert template["metadata"]["labels"]["runtime"] == "python"
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["annotations"] == {
        "note": "x",
        "kruntimes.io/capacity.runs": "4",
        "kruntimes.io/capacity.gpu": "1",
    }
    assert template["spec"]["readinessGates"] == [{"conditionType": "kruntimes.io/RuntimedReady"}]


def test_the_hash_follows_what_the_pods_are_made_of_and_nothing_else() -> None:
    def digest(defaults: PodDefaults = DEFAULTS, **fields: Any) -> str:
        return template_hash(pod_template(runtime(**fields), defaults))

    assert digest() == digest(replicas=9)
    changed = [
        digest(),
        digest(main={"image": "py:2"}),
        digest(daemonImage="kruntimes:2"),
        digest(capacity={"resources": {"runs": 3}}),
        digest(replace(DEFAULTS, log_level="DEBUG")),
    ]
    assert len(set(changed)) == len(changed)


def test_the_users_template_is_left_as_it_was() -> None:
    given = runtime(main={"env": [{"name": "A", "value": "1"}]})
    before = msgspec.json.encode(given)
    pod_template(given, DEFAULTS)
    assert msgspec.json.encode(given) == before


def test_the_replica_set_selects_its_own_pods() -> None:
    given = runtime()
    made = replica_set(given, pod_template(given, DEFAULTS), replicas=2)
    selector = made["spec"]["selector"]["matchLabels"]
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    assert made["metadata"]["name"] == f"python-{selector['kruntimes.io/template-hash']}"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "runtime-uid"


def test_the_service_is_headless_and_selects_the_runtimes_pods() -> None:
    made = service(runtime())
    assert made["metadata"]["name"] == "python"
    assert made["spec"]["clusterIP"] == "None"
    labels = pod_template(runtime(), DEFAULTS)["metadata"]["labels"]
    assert made["spec"]["selector"].items() <= labels.items()
    assert {one["name"]: one["port"] for one in made["spec"]["ports"]} == {
        "invoke": 9443,
        "peer": 9444,
        "metrics": 9090,
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, "kruntimes-runtimed", id="default"),
        pytest.param({"serviceAccountName": "mine"}, "mine", id="named"),
        pytest.param({"serviceAccount": "old"}, "old", id="by-its-old-field"),
    ],
)
def test_whose_service_account_it_is(spec: dict[str, Any], expected: str) -> None:
    given = runtime(spec=spec)
    assert service_account(given) == expected
    assert pod_template(given, DEFAULTS)["spec"]["serviceAccountName"] == expected
