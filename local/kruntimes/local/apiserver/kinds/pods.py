"""Pods: what is filled in at creation, what may change, binding, and graceful deletion. Pure."""

from typing import TYPE_CHECKING, Any

from kruntimes.local.apiserver.kinds import podfaults, podspec
from kruntimes.local.apiserver.metadata import forbidden_value
from kruntimes.local.apiserver.request import Request
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.status import About, Cause, StatusError, bad_request, conflict, forbidden
from kruntimes.local.apiserver.strategy import Context, DeleteOptions, Strategy, take

if TYPE_CHECKING:
    from kruntimes.local.apiserver.api import Api

Json = dict[str, Any]

SERVICE_ACCOUNTS = ("", "serviceaccounts")
TOKEN_SECONDS = 3607
"""The lifetime that the server gives to tokens of its own volumes: an odd number, so that they can be told apart."""
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (a path)
TOLERATED_SECONDS = 300
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_FINISHED = ("Succeeded", "Failed")


class Pods(Strategy):
    """A Pod is deleted in two steps once a node has it: the node ends it and then deletes it with grace 0."""

    generation = True
    answers_with_object = True

    def default(self, obj: Json) -> list[str]:
        """Fills in the spec."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("enableServiceLinks", True)
        podspec.default(spec)
        podspec.request_limits(spec)
        if spec["terminationGracePeriodSeconds"] < 0:
            spec["terminationGracePeriodSeconds"] = 1
        return []

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """A new Pod is pending; it gets its ServiceAccount, that account's token, and its tolerations."""
        spec = obj["spec"]
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        tolerations = spec.setdefault("tolerations", [])
        for key in _TAINTS:
            if not any(t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None) for t in tolerations):
                tolerations.append(
                    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED_SECONDS}
                )
        self._account(obj, ctx)

    def _account(self, obj: Json, ctx: Context) -> None:
        spec, meta = obj["spec"], obj["metadata"]
        name = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = ctx.store.peek(SERVICE_ACCOUNTS, meta["namespace"], name)
        if account is None:
            why = f'error looking up service account {meta["namespace"]}/{name}: serviceaccount "{name}" not found'
            raise forbidden(self.resource.about(meta.get("generateName") or meta.get("name", "")), why)
        wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
        if wanted:
            _mount_token(spec, ctx)

    def prepare_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> None:
        """The status is written by itself; so are the owners, which a status write cannot change."""
        super().prepare_update(obj, old, ctx, subresource)
        if subresource == "status":
            take(obj["metadata"], old["metadata"], "ownerReferences")
            status, before = obj.setdefault("status", {}), old.get("status", {})
            take(status, before, "qosClass")
            for key in ("initContainerStatuses", "containerStatuses"):
                for container in status.get(key) or []:
                    container.setdefault("state", {})
                    container.setdefault("lastState", {})

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Faults of the spec."""
        return podfaults.validate(obj["spec"], "spec")

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """Nearly nothing of a Pod may change."""
        causes = self.validate(obj, ctx) if not subresource else []
        if not subresource and _frozen(obj["spec"]) != _frozen(old["spec"]):
            causes.append(forbidden_value("spec", _MAY_CHANGE))
        return causes

    def grace(self, obj: Json, options: DeleteOptions, ctx: Context) -> int:
        """Nothing to wait for where no node has it, or where it has ended."""
        spec, grace = obj["spec"], options.grace_seconds
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds", podspec.GRACE_SECONDS)
        if not spec.get("nodeName") or obj.get("status", {}).get("phase") in _FINISHED:
            return 0
        return int(grace) if grace >= 0 else 1


_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _frozen(spec: Json) -> Json:
    """The spec without what may change."""
    kept = {key: value for key, value in spec.items() if key not in ("activeDeadlineSeconds", "tolerations")}
    for key in ("containers", "initContainers"):
        if key in kept:
            kept[key] = [{k: v for k, v in c.items() if k != "image"} for c in kept[key]]
    return kept


def _mount_token(spec: Json, ctx: Context) -> None:
    """Gives every container that has no other the account's token, the CA and the namespace."""
    containers = [c for key in ("initContainers", "containers") for c in spec.get(key) or []]
    without = [c for c in containers if all(m.get("mountPath") != TOKEN_PATH for m in c.get("volumeMounts") or [])]
    if not without:
        return
    name = f"kube-api-access-{ctx.suffix()}"
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": root},
        {"downwardAPI": {"items": [namespace]}},
    ]
    projected = {"sources": sources, "defaultMode": podspec.FILE_MODE}
    spec.setdefault("volumes", []).append({"name": name, "projected": projected})
    for container in without:
        mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
        container.setdefault("volumeMounts", []).append(mount)


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, from requests and limits of cpu and memory."""
    asked, equal = False, True
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        asked = asked or bool({"cpu", "memory"} & (set(requests) | set(limits)))
        equal = equal and all(k in limits and requests.get(k) == limits[k] for k in ("cpu", "memory"))
    return "BestEffort" if not asked else "Guaranteed" if equal else "Burstable"


def bind(api: "Api", request: Request, body: Json, ctx: Context) -> Json:
    """`POST …/pods/NAME/binding`: gives a Pod to a node, once."""
    pods = _pods(api)
    meta = body.get("metadata") or {}
    if meta.get("name", request.name) != request.name:
        raise bad_request("name in URL does not match name in Binding object")
    node = (body.get("target") or {}).get("name", "")
    if not node:
        raise StatusError(500, "", "target.name: Required value")
    pod = api.get(pods, request.namespace, request.name)
    uid, meta = meta.get("uid"), pod["metadata"]
    about = About(kind="pods/binding", name=request.name)
    if uid and uid != meta["uid"]:
        raise conflict(about, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}")
    if "deletionTimestamp" in meta:
        raise conflict(about, f"pod {request.name} is being deleted, cannot be assigned to a host")
    held = pod["spec"].get("nodeName")
    if held:
        raise conflict(about, f'pod {request.name} is already assigned to node "{held}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict(about, f"pod {request.name} has non-empty .spec.schedulingGates")

    def assign(obj: Json) -> Json:
        obj["spec"]["nodeName"] = node
        conditions = obj["status"].setdefault("conditions", [])
        conditions[:] = [c for c in conditions if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        scheduled |= {"lastTransitionTime": ctx.timestamp, "observedGeneration": obj["metadata"].get("generation", 1)}
        conditions.append(scheduled)
        return obj

    if not ctx.dry_run:
        api.change(pods, request.namespace, request.name, assign, subresource="binding")
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def evict(api: "Api", request: Request, body: Json, ctx: Context) -> Json:
    """`POST …/pods/NAME/eviction`: a deletion; there are no disruption budgets here to stand against it."""
    options = body.get("deleteOptions") or {}
    preconditions = options.get("preconditions") or {}
    api.delete(
        _pods(api),
        request.namespace,
        request.name,
        DeleteOptions(
            grace_seconds=options.get("gracePeriodSeconds"),
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            dry_run=ctx.dry_run,
        ),
    )
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _pods(api: "Api") -> Resource:
    found = api.resources.find("", "v1", "pods")
    assert found is not None
    return found
