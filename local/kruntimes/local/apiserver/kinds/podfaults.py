"""Faults of a Pod's spec that are found before any node sees it. Pure; the words are the real server's."""

import re
from typing import Any

from kruntimes.local.apiserver.metadata import (
    LABEL_RULE,
    annotation_faults,
    forbidden_value,
    invalid_value,
    key_faults,
    label_faults,
    name_faults,
    not_supported,
    quoted,
    required,
)  # fmt: skip
from kruntimes.local.apiserver.quantities import parse_quantity
from kruntimes.local.apiserver.status import Cause

Json = dict[str, Any]

_VOLUME_KINDS = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "nfs", "persistentVolumeClaim",
    "projected", "secret",
)  # fmt: skip
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FIELDS = re.compile(
    r"metadata\.(name|namespace|uid|(annotations|labels)\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs)"
)
"""What an environment variable may be given of its own Pod."""
_ENV_NAME = re.compile(r"[ -<>-~]+")
_PULL_POLICIES = ["Always", "IfNotPresent", "Never"]
_RESTART_POLICIES = ["Always", "OnFailure", "Never"]
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_OPERATORS = ["Equal", "Exists"]
_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_LAST_ID = 2147483647
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
    causes += label_faults(spec.get("nodeSelector") or {}, f"{at}.nodeSelector")
    causes += _ids(spec.get("securityContext") or {}, f"{at}.securityContext")
    for i, toleration in enumerate(spec.get("tolerations") or []):
        causes += _toleration(toleration, f"{at}.tolerations[{i}]")
    account = spec.get("serviceAccountName")
    if account:
        causes += [invalid_value(f"{at}.serviceAccountName", account, f) for f in name_faults(account, "subdomain")]
    return causes


def validate_template(meta: Json, at: str) -> list[Cause]:
    """Faults of a Pod template's labels and annotations; *at* is the template's path."""
    causes = label_faults(meta.get("labels") or {}, f"{at}.labels")
    return causes + annotation_faults(meta.get("annotations") or {}, f"{at}.annotations")


def _ids(context: Json, at: str) -> list[Cause]:
    """Of users and groups."""
    ids = [(key, context.get(key)) for key in ("fsGroup", "runAsUser", "runAsGroup")]
    ids += [(f"supplementalGroups[{i}]", group) for i, group in enumerate(context.get("supplementalGroups") or [])]
    why = f"must be between 0 and {_LAST_ID}, inclusive"
    return [invalid_value(f"{at}.{key}", n, why) for key, n in ids if n is not None and not 0 <= n <= _LAST_ID]


def _toleration(toleration: Json, at: str) -> list[Cause]:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    causes = [invalid_value(f"{at}.key", key, fault) for fault in key_faults(key)] if key else []
    if not key and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.append(invalid_value(f"{at}.operator", operator, why))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        causes.append(invalid_value(f"{at}.effect", effect, why))
    if operator == "Exists" and value:
        causes.append(invalid_value(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'"))
    elif operator not in ("", *_OPERATORS):
        causes.append(not_supported(f"{at}.operator", operator, _OPERATORS))
    if effect not in ("", *_EFFECTS):
        causes.append(not_supported(f"{at}.effect", effect, _EFFECTS))
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
        causes += _variable(variable, f"{at}.env[{i}]")
    for i, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            said = f"Not found: {quoted(mount.get('name', ''))}"
            causes.append(Cause(f"{at}.volumeMounts[{i}].name", "FieldValueNotFound", said))
        if not mount.get("mountPath"):
            causes.append(required(f"{at}.volumeMounts[{i}].mountPath"))
    for i, port in enumerate(container.get("ports") or []):
        number = port.get("containerPort", 0)
        here = f"{at}.ports[{i}]"
        causes += _port(number, f"{here}.containerPort") if number else [required(f"{here}.containerPort")]
        causes += _port(port["hostPort"], f"{here}.hostPort") if port.get("hostPort") else []
    for key in _PROBES:
        causes += _handler(container.get(key), f"{at}.{key}")
    for key, handler in (container.get("lifecycle") or {}).items():
        if not isinstance(handler, str):
            causes += _handler(handler, f"{at}.lifecycle.{key}")
    causes += _ids(container.get("securityContext") or {}, f"{at}.securityContext")
    return causes + _resources(container.get("resources") or {}, f"{at}.resources")


def _variable(variable: Json, at: str) -> list[Cause]:
    name, source = variable.get("name", ""), variable.get("valueFrom")
    causes: list[Cause] = []
    if not name:
        causes.append(required(f"{at}.name"))
    elif not _ENV_NAME.fullmatch(name):
        why = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        causes.append(invalid_value(f"{at}.name", name, why))
    if source is None:
        return causes
    if variable.get("value"):
        causes.append(invalid_value(f"{at}.valueFrom", "", "may not be specified when `value` is not empty"))
    if not source:
        causes.append(invalid_value(f"{at}.valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef`, "
                                    "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))  # fmt: skip
    path = (source.get("fieldRef") or {}).get("fieldPath")
    if path is not None and not _FIELDS.fullmatch(path):
        why = f"error converting fieldPath: field label not supported: {path}"
        causes.append(invalid_value(f"{at}.valueFrom.fieldRef.fieldPath", path, why))
    return causes


def _handler(handler: Json | None, at: str) -> list[Cause]:
    """What a probe or a lifecycle hook does, and its port; a name of a port is not looked up."""
    if handler is None:
        return []
    kinds = [key for key in _HANDLERS if handler.get(key) is not None]
    if not kinds:
        return [required(at, "must specify a handler type")]
    causes = [forbidden_value(f"{at}.{kind}", "may not specify more than 1 handler type") for kind in kinds[1:]]
    for key in ("httpGet", "tcpSocket", "grpc"):
        target = handler.get(key)
        if target and isinstance(target.get("port", 0), int):
            causes += _port(target.get("port", 0), f"{at}.{key}.port")
    return causes


def _port(number: int, at: str) -> list[Cause]:
    return [] if 0 < number < 65536 else [invalid_value(at, number, "must be between 1 and 65535, inclusive")]


def _resources(resources: Json, at: str) -> list[Cause]:
    """What is asked for does not pass what is allowed."""
    limits, causes = resources.get("limits") or {}, []
    for name, value in (resources.get("requests") or {}).items():
        limit = limits.get(name)
        if limit is not None and parse_quantity(str(value)) > parse_quantity(str(limit)):
            why = f"must be less than or equal to {name} limit of {limit}"
            causes.append(invalid_value(f"{at}.requests", str(value), why))
    return causes
