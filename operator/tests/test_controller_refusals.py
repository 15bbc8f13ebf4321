"""What a Runtime says when no Pods can be made of it, on a real kube-apiserver; and that mending it is enough."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.controller_world import Json, World, eventually, world

from kruntimes.common.api.views import Condition, Object, Runtime, condition
from kruntimes.common.kube import paths
from kruntimes.common.kube.errors import ServerError
from kruntimes.common.kube.transport import Kube
from kruntimes.controller import refusals
from kruntimes.controller.refusals import Refusals, explained
from kruntimes.controller.rollout import Trouble

SECRET = "hunter2hunter2"


@pytest.fixture
async def place(control_plane: Path, tmp_path: Path) -> AsyncIterator[World]:
    async with world(control_plane, tmp_path) as made:
        yield made


def template(*, spec: Json | None = None, **main: Any) -> Json:
    """A Pod template of one container, with *main* in it and *spec* beside it."""
    return {"spec": {"containers": [{"name": "runtime", "image": "registry.test/py:1", **main}], **(spec or {})}}


async def progressing(place: World, name: str, reason: str) -> Condition:
    """Waits until the Runtime's status gives that reason for the generation that it has."""

    async def found() -> Condition | None:
        runtime = await place.admin.get(paths.runtimes(place.namespace, name), Runtime)
        held = condition(runtime.status.conditions, "Progressing")
        current = held is not None and held.observed_generation == runtime.metadata.generation
        return held if held is not None and current and held.reason == reason else None

    return await eventually(found)


async def told(place: World, name: str, reason: str) -> Json:
    """Waits for an Event of that reason on the Runtime."""

    async def found() -> Json | None:
        events, _ = await place.admin.list(
            paths.events(place.namespace), dict, field_selector=f"involvedObject.name={name},reason={reason}"
        )
        return events[0] if events else None

    return await eventually(found)


MISTYPED: dict[str, tuple[Json, str]] = {
    "number": (template(env=[{"name": "A", "value": 5}]), "containers.env.value of type string"),
    "unknown": (template(spec={"foo": "bar"}), 'unknown field "spec.template.spec.foo"'),
    "misspelt": (template(env=[{"name": "A", "vaule": SECRET}]), "containers[0].env[0].vaule"),
    "object": (template(env=[{"name": "A", "value": {SECRET: SECRET}}]), "containers.env.value of type string"),
    "env-map": (template(env={"A": SECRET}), "containers.env of type []v1.EnvVar"),
    "env-text": (template(env=[f"A={SECRET}"]), "containers.env of type v1.EnvVar"),
    "quantity": (template(resources={"limits": {"memory": "12x"}}), "containers[runtime].resources.limits.memory"),
    "grace": (template(spec={"terminationGracePeriodSeconds": "30"}), "terminationGracePeriodSeconds of type int64"),
    "lifecycle": (template(lifecycle="none"), "containers.lifecycle of type v1.Lifecycle"),
    "security": (template(spec={"securityContext": "none"}), "securityContext of type v1.PodSecurityContext"),
    "tolerations": (template(spec={"tolerations": {"key": "a"}}), "tolerations of type []v1.Toleration"),
    "account": (template(spec={"serviceAccountName": 5}), "serviceAccountName of type string"),
    "account-name": (template(spec={"serviceAccountName": "Not a name"}), "spec.template.spec.serviceAccountName"),
}


async def test_a_mistyped_template_is_told_in_the_status_and_as_an_event(place: World) -> None:
    async with place.operator():
        for name, (mistyped, _) in MISTYPED.items():
            await place.runtime(name, template=mistyped)
        for name, (_, message) in MISTYPED.items():
            held = await progressing(place, name, "TemplateRefused")
            event = await told(place, name, "TemplateRefused")
            assert held.status == "False", name
            assert message in held.message, name
            assert event["type"] == "Warning"
            assert SECRET not in held.message + event["message"], name
        # None of them keeps another Runtime of the namespace from its Pods.
        await place.runtime("good")
        await place.pods("good", 1)
        await place.runtime("number", template=template(env=[{"name": "A", "value": "5"}]))
        await place.pods("number", 1)
        await progressing(place, "number", "RollingOut")


async def test_pods_that_are_there_follow_the_number_while_a_new_template_is_refused(place: World) -> None:
    async with place.operator():
        await place.runtime("python", replicas=2)
        await place.ready_pods("python", 2)
        await progressing(place, "python", "Complete")
        await place.runtime("python", replicas=2, template=template(env=[{"name": "A", "value": 5}]))
        await progressing(place, "python", "TemplateRefused")
        found = await place.admin.get(paths.runtimes(place.namespace, "python"), Runtime)
        available = condition(found.status.conditions, "Available")
        assert available is not None
        assert (available.status, available.observed_generation) == ("True", found.metadata.generation)
        scale = paths.runtimes(place.namespace, "python", "scale")
        for wanted in (3, 1):
            await place.admin.patch_merge(scale, {"spec": {"replicas": wanted}}, dict)
            await place.ready_pods("python", wanted)
            await progressing(place, "python", "TemplateRefused")
        await place.runtime("python", replicas=1)
        await progressing(place, "python", "Complete")


class Sick(Kube):
    """A client whose API server answers the create of a ReplicaSet with an error of its own, as often as is asked."""

    left: ClassVar[int]

    async def request(self, method: str, path: str, **more: Any) -> bytes:  # type: ignore[override]
        if method == "POST" and path.endswith("/replicasets") and Sick.left:
            Sick.left -= 1
            raise ServerError(status=500, message="etcdserver: request timed out")
        return await super().request(method, path, **more)


async def test_an_error_of_the_api_server_is_no_refusal_and_tried_again(place: World) -> None:
    Sick.left = 1000
    async with place.operator(Sick):
        await place.runtime("python")
        held = await progressing(place, "python", "ApiServerError")
        assert held.message == "etcdserver: request timed out"

        async def tried() -> bool:
            return Sick.left < 997

        await eventually(tried)
        Sick.left = 0
        await place.pods("python", 1)
        await progressing(place, "python", "RollingOut")


async def test_a_service_account_that_is_missing_and_a_quota_are_told_until_they_are_mended(place: World) -> None:
    async with place.operator():
        quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/pods": "1"}}}
        await place.admin.create(f"/api/v1/namespaces/{place.namespace}/resourcequotas", quota, dict)
        await place.runtime("nobody", template=template(spec={"serviceAccountName": "nope"}))
        held = await progressing(place, "nobody", "FailedCreate")
        assert held.status == "False"
        assert 'serviceaccount "nope" not found' in held.message
        assert (await told(place, "nobody", "FailedCreate"))["message"] == held.message
        await place.admin.create(paths.serviceaccounts(place.namespace), {"metadata": {"name": "nope"}}, dict)
        await place.pods("nobody", 1)
        await progressing(place, "nobody", "RollingOut")
        await place.runtime("python")
        assert "exceeded quota: few" in (await progressing(place, "python", "FailedCreate")).message
        await place.admin.delete(f"/api/v1/namespaces/{place.namespace}/resourcequotas/few")
        await place.ready_pods("python", 1)
        await progressing(place, "python", "Complete")


async def test_what_admission_refuses_is_tried_again_without_a_change(
    place: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "REFUSED_SECONDS", 0.2)
    monkeypatch.setattr("kruntimes.controller.runtimes.REFUSED_SECONDS", 0.2)
    async with place.operator():
        quotas = f"/api/v1/namespaces/{place.namespace}/resourcequotas"
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/replicasets.apps": "0"}}}
        await place.admin.create(quotas, quota, dict)
        await place.runtime("python")
        assert "exceeded quota: none" in (await progressing(place, "python", "ReplicaSetRefused")).message
        await place.admin.delete(f"{quotas}/none")
        await place.pods("python", 1)


async def test_a_foreign_replica_set_is_left_alone_and_named(place: World) -> None:
    orphan: dict[str, Json] = {
        "seen": {"ownerReferences": None},
        # Without our label no watch shows it.
        "unseen": {"ownerReferences": None, "labels": {"app.kubernetes.io/managed-by": None}},
    }
    async with place.operator():
        for name, metadata in orphan.items():
            await place.runtime(name)
            await place.pods(name, 1)
            selector = f"app.kubernetes.io/managed-by=kruntimes-operator,runtime={name}"
            (made,), _ = await place.admin.list(paths.replicasets(place.namespace), Object, label_selector=selector)
            path = paths.replicasets(place.namespace, made.metadata.name)
            await place.admin.patch_merge(path, {"metadata": metadata}, dict)
            assert made.metadata.name in (await progressing(place, name, "ReplicaSetExists")).message
            kept = await place.admin.get(path, Object)
            assert (kept.metadata.uid, kept.metadata.owner_references) == (made.metadata.uid, ())
            if name == "seen":
                await place.admin.delete(path, propagation="Background")
                await progressing(place, name, "RollingOut")


def test_a_refusal_holds_for_its_template_and_its_time() -> None:
    held = Refusals()
    trouble = Trouble("TemplateRefused", "no")
    assert held.note("n/a", "1", trouble, now=100)
    assert not held.note("n/a", "1", trouble, now=100)
    assert held.of("n/a", "1", now=129) is not None
    assert held.of("n/a", "1", now=130) is None
    assert held.of("n/a", "2", now=100) is None
    assert held.of("n/b", "1", now=100) is None
    held.forget("n/a")
    assert held.of("n/a", "1", now=100) is None


WORDS = "quantities must match the regular expression 'x'"


@pytest.mark.parametrize(
    ("message", "spec", "expected"),
    [
        pytest.param("something else", {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}, "", id="other"),
        pytest.param(WORDS, {"containers": [{"resources": {"limits": {"cpu": "500m"}}}]}, "", id="none-found"),
        pytest.param(
            WORDS,
            {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1", "memory": "12 Gi"}}}]},
            ": spec.template.spec.containers[a].resources.limits.memory",
            id="a-limit",
        ),
        pytest.param(
            WORDS,
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": True}}], "overhead": {"cpu": [1]}},
            ": spec.template.spec.volumes[v].emptyDir.sizeLimit, spec.template.spec.overhead.cpu",
            id="two-of-other-kinds",
        ),
        pytest.param(
            WORDS,
            {"containers": [{"resources": {"requests": dict.fromkeys("abcd", "")}}]},
            "".join(
                f"{', ' if i else ': '}spec.template.spec.containers[0].resources.requests.{one}"
                for i, one in enumerate("abc")
            ),
            id="no-more-than-three",
        ),
    ],
)
def test_the_fields_of_wrong_quantities_are_named(message: str, spec: Json, expected: str) -> None:
    assert explained(message, {"spec": {"template": {"spec": spec}}}) == message + expected
