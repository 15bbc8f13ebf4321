"""The CRDs and the RBAC objects of an installation, as data (design §3: what `krt dev` and the chart both need).

The YAML files lie beside this module, in `crds/` and `rbac/`; they are read when they are asked for.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

SYSTEM_NAMESPACE = "kruntimes-system"
"""The namespace that the RBAC files are written for; another one is put in its place."""


def crds() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of Run and Runtime."""
    return list(_read("crds"))


def rbac(*, namespace: str = SYSTEM_NAMESPACE) -> list[dict[str, Any]]:
    """ServiceAccounts, roles and bindings of an installation whose services run in *namespace*.

    The namespace itself must exist. Installations in several namespaces of one cluster share the ClusterRoles,
    and each has bindings of its own. Bindings of `kruntimes-runtimed` in the namespaces of Runtimes are the
    operator's work and not among them.
    """
    objects = list(_read("rbac"))
    return objects if namespace == SYSTEM_NAMESPACE else [_moved(obj, namespace) for obj in objects]


def _read(folder: str) -> Iterator[dict[str, Any]]:
    import yaml  # costs 20 ms at start, and most services read no manifest

    root = files("kruntimes.common.api").joinpath(folder)
    for file in sorted(root.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            yield from filter(None, yaml.safe_load_all(file.read_text(encoding="utf-8")))


def _moved(obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Puts *namespace* where the object or a binding's subject names the system's; returns *obj*."""
    metadata, subjects = obj["metadata"], obj.get("subjects", ())
    for place in (metadata, *subjects):
        if place.get("namespace") == SYSTEM_NAMESPACE:
            place["namespace"] = namespace
    if obj["kind"] == "ClusterRoleBinding" and any("namespace" in subject for subject in subjects):
        metadata["name"] = f"{metadata['name']}-{namespace}"
    return obj
