"""CustomResourceDefinitions: their own rules, and the resources that come and go with them. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kruntimes.local.apiserver.custom import names
from kruntimes.local.apiserver.custom.strategy import DEFINITIONS, CustomStrategy
from kruntimes.local.apiserver.resources import Column, Resource
from kruntimes.local.apiserver.schema import faults
from kruntimes.local.apiserver.status import Cause
from kruntimes.local.apiserver.store import Event
from kruntimes.local.apiserver.strategy import Context, Json, Strategy
from kruntimes.local.apiserver.values import same

if TYPE_CHECKING:
    from kruntimes.local.apiserver.api import Api

KEY = DEFINITIONS
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that holds a definition until its objects are gone."""
_AGE = Column("Age", "date", ".metadata.creationTimestamp", "When the object was made.")
_FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def resources(crd: Json) -> Iterator[tuple[Resource, CustomStrategy]]:
    """Each served version of a definition without faults."""
    # Loaded with the first definition: CEL is a good part of the server's start.
    from kruntimes.local.apiserver.schema.schema import Schema

    spec, accepted = crd["spec"], crd["status"]["acceptedNames"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        sub = version.get("subresources") or {}
        scale = sub.get("scale") or {}
        resource = Resource(
            group=spec["group"],
            version=version["name"],
            plural=accepted["plural"],
            singular=accepted["singular"],
            kind=accepted["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(accepted.get("shortNames") or ()),
            categories=tuple(accepted.get("categories") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in sub),
            selectable=tuple(field["jsonPath"] for field in version.get("selectableFields") or ()),
            columns=_columns(version),
            custom=True,
            scale=(
                scale.get("specReplicasPath", ""),
                scale.get("statusReplicasPath", ""),
                scale.get("labelSelectorPath", ""),
            ),
        )
        schema = Schema.compile(version.get("schema", {}).get("openAPIV3Schema") or _FREE)
        yield resource, CustomStrategy(resource, schema)


def _columns(version: Json) -> tuple[Column, ...]:
    found = version.get("additionalPrinterColumns")
    if not found:
        return (_AGE,)
    return tuple(
        Column(c["name"], c["type"], c["jsonPath"], c.get("description", ""), c.get("priority", 0)) for c in found
    )


class Definitions(Strategy):
    """The rules of CustomResourceDefinitions."""

    generation = True
    any_finalizer = True

    def default(self, obj: Json) -> list[str]:
        """Names and the conversion that are not given."""
        spec = obj.setdefault("spec", {})
        given = spec.setdefault("names", {})
        if given.get("kind"):
            given.setdefault("singular", given["kind"].lower())
            given.setdefault("listKind", f"{given['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})
        return []

    def prepare_create(self, obj: Json, ctx: Context) -> None:
        """It is established at once: nothing here takes time."""
        meta = obj["metadata"]
        meta["finalizers"] = [*(f for f in meta.get("finalizers") or [] if f != CLEANUP), CLEANUP]
        stored = [v["name"] for v in obj["spec"].get("versions") or [] if v.get("storage")]
        refused = names.taken(obj, ctx.store.list(KEY))
        obj["status"] = {
            "acceptedNames": {"plural": "", "kind": ""} if refused else obj["spec"]["names"],
            "conditions": [
                names.condition("NamesAccepted", refused or names.FREE, ctx),
                names.condition("Established", names.NOT_ESTABLISHED if refused else names.ESTABLISHED, ctx),
            ],
            "storedVersions": stored,
        }

    def prepare_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> None:
        """The status follows the spec."""
        super().prepare_update(obj, old, ctx, subresource)
        if subresource != "status":
            stored = [v["name"] for v in obj["spec"].get("versions") or [] if v.get("storage")]
            held = old["status"]["storedVersions"]
            accepted = obj["spec"]["names"] if names.established(old) else old["status"]["acceptedNames"]
            obj["status"] = {
                **old["status"],
                "acceptedNames": accepted,
                "storedVersions": [*held, *(v for v in stored if v not in held)],
            }

    def begin_deletion(self, obj: Json, ctx: Context) -> None:
        """From here on its objects go away."""
        others = [c for c in obj["status"]["conditions"] if c["type"] != "Terminating"]
        condition = names.condition("Terminating", names.DELETING, ctx)
        obj["status"] = {**obj["status"], "conditions": [*others, condition]}

    def validate(self, obj: Json, ctx: Context) -> list[Cause]:
        """Names, versions and schemas."""
        return _faults(obj)

    def validate_update(self, obj: Json, old: Json, ctx: Context, subresource: str) -> list[Cause]:
        """A schema that has not changed is not looked at again; group, scope and names stay."""
        if subresource == "status" or same(obj["spec"], old["spec"]):
            return []
        causes = _faults(obj)
        for path in (("group",), ("scope",), ("names", "kind"), ("names", "plural")):
            new, held = obj["spec"], old["spec"]
            for step in path:
                new, held = new.get(step, {}), held.get(step, {})
            if new != held:
                causes.append(faults.invalid(f"spec.{'.'.join(path)}", new, "field is immutable"))
        return causes


def _faults(crd: Json) -> list[Cause]:
    from kruntimes.local.apiserver.custom import checks

    return checks.definition(crd)


class Registry:
    """Keeps the API's resources in step with the stored definitions."""

    def __init__(self, api: "Api") -> None:
        self._api = api
        self._served: dict[str, list[Resource]] = {}
        for crd in api.store.list(KEY):
            self._serve(crd)
        api.listen(self._wrote)

    def _wrote(self, event: Event) -> None:
        if event.resource != KEY:
            return
        if event.type == "DELETED":
            self._drop(event.object["metadata"]["name"])
        elif event.previous is None or event.previous["spec"] != event.object["spec"]:
            self._serve(event.object)

    def _serve(self, crd: Json) -> None:
        name = crd["metadata"]["name"]
        made = list(resources(crd)) if names.established(crd) else []
        self._drop(name)
        self._served[name] = [resource for resource, _ in made]
        for resource, strategy in made:
            self._api.resources.add(resource)
            self._api.strategies.put(resource, strategy)

    def _drop(self, name: str) -> None:
        for resource in self._served.pop(name, []):
            self._api.resources.remove(resource)
            self._api.strategies.drop(resource)


def clean_up(api: "Api") -> None:
    """Deletes the objects of definitions that are going away, and lets those go that have none left."""
    definitions = api.resources.find(KEY[0], "v1", KEY[1])
    assert definitions is not None
    for crd in api.store.list(KEY):
        meta, spec = crd["metadata"], crd["spec"]
        if "deletionTimestamp" not in meta or CLEANUP not in (meta.get("finalizers") or []):
            continue
        plural = spec["names"]["plural"]
        served = (api.resources.find(spec["group"], version["name"], plural) for version in spec["versions"])
        resource = next((found for found in served if found is not None), None)
        if resource is not None:
            tuple(api.delete_each(resource, None, lambda obj: "deletionTimestamp" not in obj["metadata"]))
        if not api.store.count((spec["group"], plural)):
            api.change(definitions, "", meta["name"], _released)


def _released(obj: Json) -> Json:
    meta = obj["metadata"]
    meta["finalizers"] = [f for f in meta["finalizers"] if f != CLEANUP]
    return obj


def follow(api: "Api") -> None:
    """Serves what is defined, from now on."""
    Registry(api)
