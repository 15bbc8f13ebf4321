"""The kinds that the contract suite installs: those of kruntimes, and its own."""

from functools import partial
from pathlib import Path

import yaml
from contract.client import Api, Json, at, eventually

CRDS = Path(__file__).parents[2] / "services" / "common" / "kruntimes" / "common" / "api" / "crds"
ESTABLISH_SECONDS = 30.0

WIDGET_SCHEMA: Json = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
                "code": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "ratio": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": True, "minimum": 0},
                "on": {"type": "boolean"},
                "when": {"type": "string", "format": "date-time"},
                "blob": {"type": "string", "format": "byte"},
                "small": {"type": "integer", "format": "int32"},
                "port": {"x-kubernetes-int-or-string": True},
                "maybe": {"type": "string", "nullable": True, "default": "there"},
                "tags": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string", "maxLength": 10},
                },
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "maxItems": 5,
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string", "maxLength": 20},
                            "count": {"type": "integer", "default": 1},
                        },
                    },
                },
                "list": {"type": "array", "minItems": 1, "items": {"type": "integer"}},
                "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string"}},
                "nested": {
                    "type": "object",
                    "default": {},
                    "properties": {
                        "depth": {"type": "integer", "default": 7},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                },
                "either": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "phase": {"type": "string"},
                "selector": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type", "status"],
                        "properties": {
                            "type": {"type": "string"},
                            "status": {"type": "string"},
                            "reason": {"type": "string"},
                        },
                    },
                },
            },
        },
    },
}
"""Every kind of bound that our CRDs use, in one small object."""


def crd(plural: str, kind: str, schema: Json, *, group: str = "contract.example", **version: object) -> Json:
    """A namespaced CustomResourceDefinition with one version, v1."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


WIDGETS = crd(
    "widgets",
    "Widget",
    WIDGET_SCHEMA,
    subresources={
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.size",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
    selectableFields=[{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".status.phase"}],
    additionalPrinterColumns=[
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large."},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "On", "type": "boolean", "jsonPath": ".spec.on", "priority": 1},
        {"name": "Part", "type": "string", "jsonPath": ".spec.parts[0].name"},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
    ],
)
WIDGETS["spec"]["names"] |= {"shortNames": ["wd", "wdg"], "categories": ["contracts"]}

PLAINS = crd(
    "plains",
    "Plain",
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"text": {"type": "string"}}},
            "status": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
    },
)
"""A kind without subresources."""


CEL_FORMS = crd(
    "celforms",
    "CelForm",
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "once": {
                        "type": "string",
                        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "once is immutable"}],
                    },
                    "grows": {
                        "type": "integer",
                        "x-kubernetes-validations": [
                            {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": True}
                        ],
                    },
                    "said": {
                        "type": "integer",
                        "x-kubernetes-validations": [
                            {
                                "rule": "self < 10",
                                "messageExpression": "'want less than ten, got ' + (self < 100 ? 'tens' : 'hundreds')",
                                "message": "static",
                            }
                        ],
                    },
                    "twice": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                        "x-kubernetes-validations": [
                            {"rule": "self.a < 5", "message": "a is large", "fieldPath": ".a"},
                            {"rule": "self.b < 5", "message": "b is large", "reason": "FieldValueForbidden"},
                        ],
                    },
                    "lines": {"type": "string", "x-kubernetes-validations": [{"rule": "self.split(',').size() < 3"}]},
                    "list": {
                        "type": "array",
                        "maxItems": 5,
                        "items": {
                            "type": "string",
                            "maxLength": 9,
                            "x-kubernetes-validations": [{"rule": "self.startsWith('x')", "message": "must be x"}],
                        },
                    },
                },
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.spec) || !has(self.spec.n) || self.spec.n != 7", "message": "never seven"}
        ],
    },
)
"""Rules of every form: transition, optional old value, messages, field path, reason, at the root and in lists."""

CLUSTER_THINGS = crd("clusterthings", "ClusterThing", PLAINS["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
CLUSTER_THINGS["spec"]["scope"] = "Cluster"

MANIES = crd("manies", "Many", PLAINS["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
MANIES["spec"]["versions"] += [
    {**MANIES["spec"]["versions"][0], "name": "v2", "storage": False},
    {**MANIES["spec"]["versions"][0], "name": "v3", "storage": False, "served": False},
]
"""A kind in two versions, and in a third that is not served."""

OWN = (WIDGETS, PLAINS, CEL_FORMS, CLUSTER_THINGS, MANIES)
"""The kinds of this suite."""


def install(api: Api) -> None:
    """Puts the CRDs of kruntimes and of this suite on the server, and waits until their resources are served.

    They stay there: other users of the same server may have objects of them. An update of a CRD comes into force some
    time after its answer, and nothing tells when, so a kind of this suite that has changed is made anew.
    """
    files = [yaml.safe_load((CRDS / f"{kind}.yaml").read_text()) for kind in ("runs", "runtimes")]
    for body in (*files, *OWN):
        if api.create(at("customresourcedefinitions"), body).code == 409:
            _renew(api, body)
    for body in (*files, *OWN):
        path = at(body["spec"]["names"]["plural"])
        eventually(f"{path} served", partial(api.exists, path), ESTABLISH_SECONDS)


def _renew(api: Api, body: Json) -> None:
    """Puts a definition in the place of the one that is there."""
    path = at("customresourcedefinitions", None, body["metadata"]["name"])
    held = api.get(path).ok()["metadata"]
    new = {**body, "metadata": {**body["metadata"], "resourceVersion": held["resourceVersion"]}}
    changed = api.replace(path, new).ok()["metadata"]["generation"] != held["generation"]
    if changed and body in OWN:
        api.delete(path).ok()
        eventually(f"{path} gone", lambda: not api.exists(path), ESTABLISH_SECONDS)
        api.create(at("customresourcedefinitions"), body).ok(201)
