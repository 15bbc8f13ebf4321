"""Bodies, types, forms of an answer, query options: what the wire says as values, and what is answered."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kruntimes.local.apiserver import bodies, negotiation, shapes, tables, yaml_bodies
from kruntimes.local.apiserver.bodies import duplicates, media_type, read_object
from kruntimes.local.apiserver.parts import JSON, YAML, no_protobuf
from kruntimes.local.apiserver.resources import Column, Resource, Resources
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.tables import Form, wanted
from kruntimes.local.apiserver.times import age

Json = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
THINGS = Resource(
    group="e.x", version="v1", plural="things", singular="thing", kind="Thing", namespaced=True, custom=True,
    columns=(Column("Size", "integer", ".spec.size"), Column("When", "date", ".spec.when"),
             Column("First", "string", ".spec.parts[0].name"), Column("Ready", "string",
             '.status.conditions[?(@.type=="Ready")].status')),
)  # fmt: skip


def built_in(plural: str) -> Resource:
    """A built-in resource."""
    return next(r for r in Resources.built_in() if r.plural == plural)


BODIES: list[tuple[str, str, bytes, int, str]] = [
    # plural, media type, body, code, message
    ("configmaps", JSON, b"", 400, "json parse error: unexpected end of JSON input (<empty>)"),
    ("configmaps", JSON, b'{"a', 400, 'unexpected end of JSON input ({"a)'),
    ("configmaps", JSON, b"[]", 400, "json: cannot unmarshal array into Go value"),
    ("configmaps", JSON, b"\xff", 400, "the object provided is unrecognized (must be of type ConfigMap)"),
    ("configmaps", JSON, b"{" + b"x" * 50, 400, "..."),
    ("configmaps", YAML, b"a: [", 400, "did not find expected node content (613a205b)"),
    ("configmaps", YAML, b"a: &x [1]\nb: *x", 400, "aliases are not taken"),
    ("configmaps", "text/plain", b"{}", 415, "accepted media types include: application/json"),
    ("configmaps", JSON, b'{"kind":"Secret","apiVersion":"v1"}', 400, "converting (v1.Secret) to (core.ConfigMap)"),
    ("configmaps", JSON, b'{"kind":"Foo","apiVersion":"v1"}', 400, 'no kind "Foo" is registered for version "v1"'),
    ("things", JSON, b'{"apiVersion":"e.x/v1"}', 400, "Object 'Kind' is missing in '{\"apiVersion\":\"e.x/v1\"}'"),
    ("things", JSON, b'{"kind":"Thing"}', 400, "the API version in the data () does not match the expected API"),
    ("things", JSON, b'{"apiVersion":"e.x/v1","kind":"Foo","metadata":{"name":"n"}}', 422,
     'Foo.e.x "n" is invalid: kind: Invalid value: "Foo": must be Thing'),
]  # fmt: skip


def read(plural: str, body: bytes, media: str = JSON) -> Json:
    """Reads a body as the server does."""
    return read_object(
        body,
        media,
        THINGS if plural == "things" else built_in(plural),
        protobuf=no_protobuf,
        registered=lambda version, kind: (version, kind) in (("v1", "Secret"), ("v1", "ConfigMap")),
    )


@pytest.mark.parametrize(("plural", "media", "body", "code", "message"), BODIES, ids=[str(r[2][:20]) for r in BODIES])
def test_bodies_that_are_refused(plural: str, media: str, body: bytes, code: int, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        read(plural, body, media)
    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value.message


def test_bodies() -> None:
    assert read("configmaps", b"{}") == {"kind": "ConfigMap", "apiVersion": "v1"}
    assert read("configmaps", b"data: {a: 2001-01-01}", YAML)["data"] == {"a": "2001-01-01"}, "no dates"
    assert read("configmaps", b' {"data": {}}', YAML)["data"] == {}
    assert media_type("application/json; charset=utf-8") == media_type("") == JSON


def test_a_patch_that_is_no_json() -> None:
    with pytest.raises(StatusError, match="invalid JSON patch"):
        bodies.decode(b"{", "application/merge-patch+json", no_protobuf)


def test_fields_that_stand_there_twice() -> None:
    body = b'{"a": 1, "b": [{"c": 1, "c": 2, "d": {"e": 1, "e": 1}}], "a": 2, "a": 3}'
    assert duplicates(body) == ["a", "b[0].c", "b[0].d.e"]
    assert duplicates(b'{"a": {"b": 1}, "c": {"b": 1}}') == []
    assert duplicates(b"nonsense") == []


def test_yaml_round() -> None:
    value = {"a": ["ü", None, 1.5, {"b": "2001-01-01"}], "c": {}}
    assert yaml_bodies.load(yaml_bodies.dump(value)) == value


# ---------------------------------------------------------------- types


def fit(kind: str, obj: Json) -> tuple[Json, list[str]]:
    """The object after it has been held to its types, and what was unknown."""
    unknown = shapes.fit(kind, obj)
    return obj, unknown


def test_unknown_fields_are_taken_out_and_named() -> None:
    pod = {"metadata": {"name": "a", "no": 1}, "spec": {"containers": [{"name": "b", "no": 1}], "no": {}}, "no": 1}
    kept, unknown = fit("Pod", pod)
    assert kept == {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "b"}]}}
    assert unknown == ["metadata.no", "spec.containers[0].no", "spec.no", "no"]


def test_what_is_rarely_used_has_its_types_too() -> None:
    spec = {"affinity": {"nodeAffinity": {"no": 1}}, "dnsConfig": {"options": [{"name": "ndots", "no": 1}]}}
    assert fit("Pod", {"metadata": {}, "spec": spec})[1] == [
        "spec.affinity.nodeAffinity.no",
        "spec.dnsConfig.options[0].no",
    ]
    with pytest.raises(
        shapes.Misfit, match=r"Go struct field PodDNSConfig\.spec\.dnsConfig\.searches of type \[\]string"
    ):
        fit("Pod", {"metadata": {}, "spec": {"dnsConfig": {"searches": "x"}}})


def test_nulls_are_left_out() -> None:
    assert fit("ConfigMap", {"metadata": {"labels": None, "creationTimestamp": None}, "data": None})[0] == {
        "metadata": {"creationTimestamp": None}
    }


def test_custom_kinds_are_held_to_their_metadata_alone() -> None:
    kept, unknown = fit("Object", {"metadata": {"no": 1}, "spec": {"anything": None}})
    assert (kept, unknown) == ({"metadata": {}, "spec": {"anything": None}}, ["metadata.no"])


MISFITS: list[tuple[str, Json, str]] = [
    ("ConfigMap", {"data": "x"}, "unmarshal string into Go struct field ConfigMap.data of type map[string]string"),
    ("ConfigMap", {"data": {"a": 1}}, "cannot unmarshal number into Go struct field ConfigMap.data of type string"),
    ("ConfigMap", {"immutable": "x"}, "cannot unmarshal string into Go struct field ConfigMap.immutable of type bool"),
    ("Pod", {"spec": {"containers": [{"name": 5}]}},
     "cannot unmarshal number into Go struct field Container.spec.containers.name of type string"),
    ("Pod", {"spec": {"containers": {}}},
     "cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"),
    ("Pod", {"spec": []}, "cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec"),
    ("Pod", {"spec": {"priority": True}}, "cannot unmarshal bool into Go struct field PodSpec.spec.priority"),
    ("Pod", {"spec": {"priority": 1.5}}, "cannot unmarshal number into Go struct field PodSpec.spec.priority"),
    ("Pod", {"spec": {"overhead": {"cpu": "lots"}}}, "quantities must match the regular expression"),
    ("Secret", {"metadata": {"finalizers": "x"}}, "Go struct field ObjectMeta.metadata.finalizers of type []string"),
    ("Lease", {"spec": {"renewTime": "x"}}, 'parsing time "x" as "2006-01-02T15:04:05.000000Z07:00"'),
    ("Lease", {"spec": {"renewTime": "2020-01-01T00:00:00Z"}}, 'cannot parse "Z" as ".000000"'),
    ("Event", {"firstTimestamp": "yesterday"}, 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00"'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "obj", "message"), MISFITS, ids=[f"{r[0]}-{i}" for i, r in enumerate(MISFITS)])
def test_values_of_other_types(kind: str, obj: Json, message: str) -> None:
    with pytest.raises(shapes.Misfit) as misfit:
        shapes.fit(kind, obj)
    assert message in str(misfit.value)


def test_every_built_in_kind_that_is_stored_has_a_shape() -> None:
    stored = {r.kind for r in Resources.built_in() if not r.virtual} - {"CustomResourceDefinition"}
    assert stored <= shapes.table().keys()


# ---------------------------------------------------------------- forms

ACCEPTS: list[tuple[str, Form | None]] = [
    ("", Form()),
    ("*/*", Form()),
    ("application/json", Form()),
    ("application/vnd.kubernetes.protobuf,application/json", Form()),
    ("application/yaml;q=0.1, application/json", Form()),
    ("application/yaml", Form(yaml=True)),
    ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", Form("Table")),
    ("application/json;as=Table;g=meta.k8s.io;v=v9,application/json", Form()),
    ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Form("PartialObjectMetadata")),
    ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Form("PartialObjectMetadata", listed=True)),
    ("text/html", None),
    ("application/*", None),
    ("application/json;as=Odd;g=meta.k8s.io;v=v1", None),
]


@pytest.mark.parametrize(("accept", "form"), ACCEPTS, ids=[row[0] or "empty" for row in ACCEPTS])
def test_what_is_accepted(accept: str, form: Form | None) -> None:
    assert wanted(accept) == form


AGES: list[tuple[int, str]] = [
    (-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (195, "3m15s"), (3599, "59m"), (3 * 3600, "3h"),
    (3 * 3600 + 60, "3h1m"), (9 * 3600, "9h"), (3 * 86400, "3d"), (3 * 86400 + 7200, "3d2h"), (20 * 86400, "20d"),
    (800 * 86400, "2y70d"), (4000 * 86400, "10y"),
]  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), AGES, ids=[row[1] for row in AGES])
def test_ages(seconds: int, text: str) -> None:
    assert age((NOW - timedelta(seconds=seconds)).isoformat(), NOW) == text
    assert age("", NOW, seconds=seconds) == text


def test_an_age_of_nothing() -> None:
    assert age("", NOW) == age("soon", NOW) == "<unknown>"


def cells(resource: Resource, obj: Json) -> dict[str, Any]:
    """The cells of a row, by column."""
    shown = tables.table(resource, [obj], {}, now=NOW, include="None", columns=True)
    return dict(zip([c["name"] for c in shown["columnDefinitions"]], shown["rows"][0]["cells"], strict=True))


def test_cells_of_a_custom_kind() -> None:
    spec = {"size": 3, "when": "2026-03-01T11:59:00Z", "parts": [{"name": "p"}]}
    status = {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": True}]}
    shown = cells(THINGS, {"metadata": {"name": "a"}, "spec": spec, "status": status})
    assert shown == {"Name": "a", "Size": 3, "When": "60s", "First": "p", "Ready": "true"}
    assert cells(THINGS, {"metadata": {"name": "a"}}) == {
        "Name": "a", "Size": None, "When": None, "First": None, "Ready": None,
    }  # fmt: skip


STATES: list[tuple[str, Json, dict[str, str]]] = [
    ("nothing", {}, {"Status": "Unknown", "Ready": "0/1", "Restarts": "0"}),
    ("evicted", {"phase": "Failed", "reason": "Evicted"}, {"Status": "Evicted"}),
    ("running", {"phase": "Running", "main": {"ready": True, "state": {"running": {}}, "restartCount": 2}},
     {"Status": "Running", "Ready": "1/1", "Restarts": "2"}),
    ("crashing", {"phase": "Running", "main": {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3,
                  "lastState": {"terminated": {"finishedAt": "2026-03-01T11:59:30Z"}}}},
     {"Status": "CrashLoopBackOff", "Restarts": "3 (30s ago)"}),
    ("ended", {"phase": "Failed", "main": {"state": {"terminated": {"exitCode": 3}}}}, {"Status": "ExitCode:3"}),
    ("killed", {"phase": "Failed", "main": {"state": {"terminated": {"signal": 9}}}}, {"Status": "Signal:9"}),
    ("initializing", {"phase": "Pending", "first": {"state": {"running": {}}}}, {"Status": "Init:0/1"}),
    ("init-failed", {"phase": "Pending", "first": {"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}},
     {"Status": "Init:Error"}),
    ("initialized", {"phase": "Running", "first": {"state": {"terminated": {"exitCode": 0}}},
                     "main": {"ready": True, "state": {"running": {}}}}, {"Status": "Running", "Ready": "1/1"}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "expected"), [pytest.param(*row[1:], id=row[0]) for row in STATES])
def test_the_row_of_a_pod(status: Json, expected: dict[str, str]) -> None:
    first, main = status.pop("first", None), status.pop("main", None)
    if first is not None:
        status["initContainerStatuses"] = [{"name": "first", **first}]
    if main is not None:
        status["containerStatuses"] = [{"name": "main", **main}]
    spec = {"containers": [{"name": "main"}], "initContainers": [{"name": "first"}]}
    shown = cells(built_in("pods"), {"metadata": {"name": "p"}, "spec": spec, "status": status})
    assert {key: shown[key] for key in expected} == expected


def test_sidecars_count_as_containers() -> None:
    spec = {"containers": [{"name": "main"}], "initContainers": [{"name": "side", "restartPolicy": "Always"}]}
    up = {"ready": True, "started": True, "state": {"running": {}}}
    status = {"phase": "Running", "containerStatuses": [{"name": "main", **up}],
              "initContainerStatuses": [{"name": "side", **up}]}  # fmt: skip
    shown = cells(built_in("pods"), {"metadata": {"name": "p"}, "spec": spec, "status": status})
    assert (shown["Ready"], shown["Status"]) == ("2/2", "Running")


ROWS: list[tuple[str, Json, dict[str, Any]]] = [
    ("nodes", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"unschedulable": True}},
     {"Status": "Ready,SchedulingDisabled", "Roles": "<none>", "Internal-IP": "<none>"}),
    ("nodes", {}, {"Status": "Unknown"}),
    ("events", {"involvedObject": {"kind": "Pod", "name": "p"}, "message": " m \n", "count": 3,
                "lastTimestamp": "2026-03-01T11:59:00Z", "source": {"component": "c", "host": "h"}},
     {"Object": "pod/p", "Message": "m", "Count": 3, "Last Seen": "60s", "First Seen": "<unknown>", "Source": "c, h"}),
    ("services", {"spec": {"type": "LoadBalancer", "ports": [{"port": 1, "nodePort": 30001, "protocol": "TCP"}]}},
     {"External-IP": "<pending>", "Port(s)": "1:30001/TCP", "Cluster-IP": "<none>", "Selector": "<none>"}),
    ("endpointslices", {"addressType": "IPv4", "ports": [], "endpoints": [{"addresses": list("abcde")}]},
     {"Ports": "<unset>", "Endpoints": "a,b,c + 2 more..."}),
    ("certificatesigningrequests", {"spec": {"expirationSeconds": 3600, "signerName": "s"},
                                    "status": {"certificate": "x", "conditions": [{"type": "Approved"}]}},
     {"RequestedDuration": "60m", "Condition": "Approved,Issued"}),
    ("certificatesigningrequests", {}, {"RequestedDuration": "<none>", "Condition": "Pending"}),
    ("persistentvolumeclaims", {"spec": {}, "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"]}},
     {"Status": "Bound", "Access Modes": "RWO"}),
    ("customresourcedefinitions", {"spec": {"scope": "Namespaced", "names": {"kind": "T"},
     "versions": [{"name": "v1", "served": True, "storage": True}, {"name": "v2", "served": True}, {"name": "v3"}]}},
     {"Versions": "v1(storage),v2", "Established": False}),
]  # fmt: skip


@pytest.mark.parametrize(("plural", "obj", "expected"), ROWS, ids=[f"{r[0]}-{i}" for i, r in enumerate(ROWS)])
def test_rows(plural: str, obj: Json, expected: dict[str, Any]) -> None:
    shown = cells(built_in(plural), {"metadata": {"name": "a", "namespace": "n"}, **obj})
    assert {key: shown[key] for key in expected} == expected


# ---------------------------------------------------------------- query options

DELETES: list[tuple[Any, dict[str, str], str]] = [
    ({"kind": "Pod"}, {}, "the body is not DeleteOptions"),
    ([], {}, "the body is not DeleteOptions"),
    ({"gracePeriodSeconds": "x"}, {}, "gracePeriodSeconds must be an integer"),
    ({"propagationPolicy": "X"}, {}, 'propagationPolicy: Unsupported value: "X": supported values: "Foreground"'),
    ({"propagationPolicy": "Orphan", "orphanDependents": True}, {}, "cannot be both set"),
    ({"dryRun": ["x"]}, {}, 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
    ({}, {"propagationPolicy": "X"}, "propagationPolicy"),
    ({}, {"gracePeriodSeconds": "x"}, "strconv.ParseInt"),
    ({}, {"dryRun": "x"}, 'dryRun: Unsupported value: ["x"]'),
]


@pytest.mark.parametrize(("body", "query", "message"), DELETES, ids=[f"{r[0]}-{r[1]}" for r in DELETES])
def test_delete_options_that_are_refused(body: Any, query: dict[str, str], message: str) -> None:
    with pytest.raises(StatusError) as refused:
        negotiation.delete_options(body, query)
    assert message in refused.value.message


def test_delete_options() -> None:
    options = negotiation.delete_options({"gracePeriodSeconds": 5, "preconditions": {"uid": "u"}}, {})
    assert (options.grace_seconds, options.uid, options.propagation) == (5, "u", None)
    assert negotiation.delete_options({}, {"orphanDependents": "true"}).propagation == "Orphan"
    assert negotiation.delete_options({"orphanDependents": False}, {}).propagation == "Background"
    assert negotiation.delete_options({"dryRun": ["All"]}, {}).dry_run


def manager(query: dict[str, str], *, apply: bool = False, agent: str = "") -> str:
    """Who is said to write by a PATCH."""
    return negotiation.field_manager(query, "PatchOptions", agent=agent, apply=apply)


def test_field_managers() -> None:
    assert manager({"fieldManager": "m"}, agent="a/1") == "m"
    assert manager({}, agent="kubectl/v1.37 (linux)") == "kubectl"
    assert manager({}) == "unknown"
    assert manager({"fieldManager": "m", "force": "true"}, apply=True) == "m"
    for query, apply, message in (
        ({}, True, "fieldManager: Required value: is required for apply patch"),
        ({"fieldManager": "m" * 129}, False, "fieldManager: Too long"),
        ({"force": "true"}, False, "force: Forbidden: may not be specified for non-apply patch"),
    ):
        with pytest.raises(StatusError) as refused:
            manager(query, apply=apply)
        assert message in refused.value.message
    with pytest.raises(StatusError, match="fieldValidation: Unsupported value"):
        negotiation.strictness({"fieldValidation": "x"}, "PatchOptions")
