"""The part of a Pod that templates share with it: what a creator may leave out. Pure."""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

FILE_MODE = 0o644
TOKEN_SECONDS = 3600
GRACE_SECONDS = 30
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default(spec: Json) -> None:
    """Fills in what a creator may leave out, in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in _containers(spec):
        _default_container(container)
    for volume in spec.get("volumes") or []:
        _default_volume(volume)
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]


def request_limits(spec: Json) -> None:
    """Requests of a Pod, not of a template, what its containers are limited to and do not request."""
    for container in _containers(spec):
        resources = container["resources"]
        for name, value in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, value)


def _containers(spec: Json) -> Iterator[Json]:
    for key in ("initContainers", "containers"):
        yield from spec.get(key) or []


def _default_container(container: Json) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        if variable.get("value") == "":
            del variable["value"]
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")
    for key in _PROBES:
        if container.get(key):
            _default_probe(container[key])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and hook.get("httpGet"):
            _default_http(hook["httpGet"])


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"


def _default_probe(probe: Json) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(key, value)
    if probe.get("httpGet"):
        _default_http(probe["httpGet"])


def _default_http(get: Json) -> None:
    get.setdefault("path", "/")
    get.setdefault("scheme", "HTTP")


def _default_volume(volume: Json) -> None:
    kinds = [key for key in volume if key != "name"]
    if not kinds:
        volume["emptyDir"] = {}
    for key in ("configMap", "secret", "downwardAPI", "projected"):
        if volume.get(key) is not None:
            volume[key].setdefault("defaultMode", FILE_MODE)
    for source in (volume.get("projected") or {}).get("sources") or []:
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", TOKEN_SECONDS)
        _field_refs(source.get("downwardAPI"))
    _field_refs(volume.get("downwardAPI"))
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")


def _field_refs(source: Json | None) -> None:
    for item in (source or {}).get("items") or []:
        if item.get("fieldRef"):
            item["fieldRef"].setdefault("apiVersion", "v1")
