"""The part of a Pod that templates share with it: defaults, and the faults that matter before a node sees it. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from kruntimes.local.apiserver.metadata import (
    LABEL_RULE,
    invalid_value,
    name_faults,
    not_supported,
    quoted,
    required,
)  # fmt: skip
from kruntimes.local.apiserver.status import Cause

Json = dict[str, Any]

FILE_MODE = 0o644
TOKEN_SECONDS = 3600
GRACE_SECONDS = 30
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_VOLUME_KINDS = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "nfs", "persistentVolumeClaim",
    "projected", "secret",
)  # fmt: skip


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
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")
    for key in _PROBES:
        if container.get(key):
            _default_probe(container[key])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and hook.get("httpGet"):
            _default_http(hook["httpGet"])
    resources = container["resources"]
    for name, value in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, value)


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


# ---------------------------------------------------------------- faults

_ENV_NAME = re.compile(r"[ -<>-~]+")
_PULL_POLICIES = ["Always", "IfNotPresent", "Never"]
_RESTART_POLICIES = ["Always", "OnFailure", "Never"]
_DNS_POLICIES = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]


def validate(spec: Json, at: str) -> list[Cause]:
    """Faults of a Pod's spec at the path *at*."""
    causes: list[Cause] = []
    volumes: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or []):
        causes += _volume(volume, f"{at}.volumes[{i}]", volumes)
    if not spec.get("containers"):
        causes.append(required(f"{at}.containers"))
    names: set[str] = set()
    for key in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(key) or []):
            causes += _container(container, f"{at}.{key}[{i}]", names, volumes)
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        causes.append(not_supported(f"{at}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES))
    if spec.get("dnsPolicy") not in _DNS_POLICIES:
        causes.append(not_supported(f"{at}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES))
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if grace < 0:
        why = "must be greater than or equal to 0"
        causes.append(invalid_value(f"{at}.terminationGracePeriodSeconds", grace, why))
    account = spec.get("serviceAccountName")
    if account:
        causes += [invalid_value(f"{at}.serviceAccountName", account, f) for f in name_faults(account, "subdomain")]
    return causes


def _label(value: str, at: str) -> list[Cause]:
    if not value:
        return [required(at)]
    faults = name_faults(value, "label")
    return [invalid_value(at, value, LABEL_RULE if fault == "must not contain dots" else fault) for fault in faults]


def _volume(volume: Json, at: str, seen: set[str]) -> list[Cause]:
    name = volume.get("name", "")
    causes = _label(name, f"{at}.name")
    if name in seen:
        causes.append(Cause(f"{at}.name", "FieldValueDuplicate", f"Duplicate value: {quoted(name)}"))
    seen.add(name)
    kinds = [key for key in volume if key in _VOLUME_KINDS]
    if not kinds:
        causes.append(required(at, "must specify a volume type"))
    for kind in kinds[1:]:
        said = "Forbidden: may not specify more than 1 volume type"
        causes.append(Cause(f"{at}.{kind}", "FieldValueForbidden", said))
    return causes


def _container(container: Json, at: str, names: set[str], volumes: set[str]) -> list[Cause]:
    name = container.get("name", "")
    causes = _label(name, f"{at}.name")
    if name in names:
        causes.append(Cause(f"{at}.name", "FieldValueDuplicate", f"Duplicate value: {quoted(name)}"))
    names.add(name)
    image = container.get("image", "")
    if not image:
        causes.append(required(f"{at}.image"))
    elif image.strip() != image:
        causes.append(invalid_value(f"{at}.image", image, "must not have leading or trailing whitespace"))
    if container.get("imagePullPolicy") not in _PULL_POLICIES:
        causes.append(not_supported(f"{at}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES))
    for i, variable in enumerate(container.get("env") or []):
        key = variable.get("name", "")
        if not key:
            causes.append(required(f"{at}.env[{i}].name"))
        elif not _ENV_NAME.fullmatch(key):
            why = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            causes.append(invalid_value(f"{at}.env[{i}].name", key, why))
    for i, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            said = f"Not found: {quoted(mount.get('name', ''))}"
            causes.append(Cause(f"{at}.volumeMounts[{i}].name", "FieldValueNotFound", said))
        if not mount.get("mountPath"):
            causes.append(required(f"{at}.volumeMounts[{i}].mountPath"))
    for i, port in enumerate(container.get("ports") or []):
        number = port.get("containerPort", 0)
        if not isinstance(number, int) or not 0 < number < 65536:
            why = "must be between 1 and 65535, inclusive"
            causes.append(invalid_value(f"{at}.ports[{i}].containerPort", number, why))
    return causes
