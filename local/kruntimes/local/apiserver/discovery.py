"""What the API says of itself: versions, groups and resources, as client libraries and kubectl ask for them. Pure."""

import hashlib
import platform
from typing import Any

from kruntimes.local.apiserver.resources import Resource, Resources

Json = dict[str, Any]

MAJOR, MINOR = "1", "37"
"""The Kubernetes version whose behaviour is kept; kubectl warns when it is more than one minor away."""


def version() -> Json:
    """`/version`."""
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": f"v{MAJOR}.{MINOR}.0+kruntimes",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "cpython",
        "platform": f"linux/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()) }",
    }


def api_versions(server: str) -> Json:
    """`/api`; *server* is host and port as the caller reaches them."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
    }


def _group(name: str, versions: tuple[str, ...]) -> Json:
    listed = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def api_groups(resources: Resources) -> Json:
    """`/apis`."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, versions) for name, versions in resources.groups().items()],
    }


def api_group(resources: Resources, name: str) -> Json | None:
    """`/apis/GROUP`, or None where there is no such group."""
    versions = resources.groups().get(name)
    return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


SUBRESOURCE_KINDS = {
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
}
"""Subresources whose body is of another kind than their parent's."""
SUBRESOURCE_VERBS = {
    "token": ["create"], "binding": ["create"], "eviction": ["create"], "log": ["get"], "finalize": ["update"],
}  # fmt: skip


def _entries(resource: Resource) -> list[Json]:
    main: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    if not resource.virtual:
        identity = f"{resource.group}/{resource.version}/{resource.kind}".encode()
        main["storageVersionHash"] = hashlib.sha256(identity).hexdigest()[:12]
    entries = [main]
    for name in sorted(resource.subresources):
        entry: Json = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": SUBRESOURCE_VERBS.get(name, ["get", "patch", "update"]),
        }
        if name in SUBRESOURCE_KINDS:
            group, other, kind = SUBRESOURCE_KINDS[name]
            entry |= {"group": group, "version": other, "kind": kind}
        entries.append(entry)
    return entries


def resource_list(resources: Resources, group: str, group_version: str) -> Json | None:
    """`/api/v1` or `/apis/GROUP/VERSION`, or None where there is no such version."""
    listed = sorted((r for r in resources if r.group == group and r.version == group_version), key=lambda r: r.plural)
    if not listed:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{group_version}" if group else group_version,
        "resources": [entry for resource in listed for entry in _entries(resource)],
    }
