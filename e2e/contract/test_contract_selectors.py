"""Label selectors and field selectors in lists: what they match and what they refuse."""

import pytest
from contract.client import Api, Json, at
from contract.objects import make


@pytest.fixture
def labelled(api: Api, ns: str, name: str) -> str:
    """Four ConfigMaps; the label `of` tells them from all others."""
    for i, labels in enumerate(({"a": "1"}, {"a": "2", "x.io/b": "t"}, {"a": ""}, {"n": "7"})):
        make(api, "configmaps", ns, f"{name}-{i}", meta={"labels": {**labels, "of": name}})
    return name


LABELS: list[tuple[str, list[int]]] = [
    ("a=1", [0]),
    ("a==1", [0]),
    ("a = 1", [0]),
    ("a!=1", [1, 2, 3]),
    ("a", [0, 1, 2]),
    ("!a", [3]),
    ("a=", [2]),
    ("a!=", [0, 1, 3]),
    ("a in (1,2)", [0, 1]),
    ("a in (1, 2)", [0, 1]),
    ("a in (1,)", [0, 2]),
    ("a in ()", [2]),
    ("a notin (1,2)", [2, 3]),
    ("x.io/b=t", [1]),
    ("x.io/b", [1]),
    ("a,x.io/b", [1]),
    ("a=1,a=2", []),
    ("n>5", [3]),
    ("n<5", []),
    ("n > 5,n < 9", [3]),
    ("nope", []),
]


@pytest.mark.parametrize(("selector", "expected"), LABELS, ids=[row[0] for row in LABELS])
def test_label_selectors(api: Api, ns: str, labelled: str, selector: str, expected: list[int]) -> None:
    body = api.get(at("configmaps", ns), labelSelector=f"of={labelled},{selector}").ok(200)
    assert [i["metadata"]["name"] for i in body["items"]] == [f"{labelled}-{i}" for i in expected]


BAD_LABELS: list[tuple[str, str]] = [
    ("a=b=c", "found '=', expected: ',' or 'end of string'"),
    ("a in 1", "unable to parse requirement: found '1' expected: '('"),
    ("a in (1", "unable to parse requirement: found '', expected: ',' or ')'"),
    ("a b", "unable to parse requirement: "),
    ("=1", "found '=', expected: !, identifier, or 'end of string'"),
    ("a/b/c=1", "unable to parse requirement: <nil>: Invalid value: "),
    ("-a=1", "unable to parse requirement: "),
    ("a=b c", "found 'c', expected: ',' or 'end of string'"),
    ("a=-b", "unable to parse requirement: "),
    ("n>x", "unable to parse requirement: "),
    ("a,(", "found '(', expected: identifier after ','"),
    ("a=1,", "found '', expected: identifier after ','"),
]


@pytest.mark.parametrize("resource", ["configmaps", "widgets"])
@pytest.mark.parametrize(("selector", "message"), BAD_LABELS, ids=[row[0] for row in BAD_LABELS])
def test_label_selectors_that_are_none(api: Api, ns: str, resource: str, selector: str, message: str) -> None:
    api.get(at(resource, ns), labelSelector=selector).refused(400, "BadRequest", message)


@pytest.fixture
def fielded(api: Api, ns: str, name: str) -> str:
    """Widgets, Pods and Events to select by their fields, labelled `of`."""
    of = {"labels": {"of": name}}
    make(api, "widgets", ns, f"{name}-0", spec={"size": 3, "color": "green"}, meta=of)
    make(api, "widgets", ns, f"{name}-1", spec={"size": 4}, meta=of)
    api.patch(at("widgets", ns, f"{name}-1", "status"), {"status": {"phase": "p,q"}}).ok(200)
    spec: Json = {"tolerations": [{"operator": "Exists"}]}
    make(api, "pods", ns, f"{name}-0", meta=of)
    make(api, "pods", ns, f"{name}-1", meta=of, spec={**spec, "nodeName": "node-x", "restartPolicy": "Never"})
    api.patch(at("pods", ns, f"{name}-1", "status"), {"status": {"phase": "Running"}}).ok(200)
    make(api, "secrets", ns, f"{name}-0", meta=of)
    make(api, "secrets", ns, f"{name}-1", meta=of, type="contract.example/x")
    subject = {"kind": "Run", "name": "r", "namespace": ns, "uid": "u-1", "apiVersion": "kruntimes.io/v1alpha1"}
    make(api, "events", ns, f"{name}-0", meta=of, involvedObject=subject)
    make(api, "events", ns, f"{name}-1", meta=of, involvedObject={**subject, "name": "s"}, type="Warning", reason="Bad")
    return name


FIELDS: list[tuple[str, str, list[int]]] = [
    ("widgets", "metadata.name=NAME-0", [0]),
    ("widgets", "metadata.name!=NAME-0", [1]),
    ("widgets", "metadata.namespace=NS", [0, 1]),
    ("widgets", "metadata.namespace=other", []),
    ("widgets", "spec.color=green", [0]),
    ("widgets", "spec.color==green", [0]),
    ("widgets", "spec.color=red", [1]),  # a default counts
    ("widgets", "spec.color!=green", [1]),
    ("widgets", "spec.size=4", [1]),  # an integer is compared as text
    ("widgets", "spec.size=04", []),
    ("widgets", "spec.color=red,spec.size=4", [1]),
    ("widgets", "spec.color=red,spec.size=3", []),
    ("widgets", "status.phase=", [0]),  # what is absent is empty
    ("widgets", "status.phase=p\\,q", [1]),
    ("widgets", "", [0, 1]),
    ("pods", "spec.nodeName=node-x", [1]),
    ("pods", "spec.nodeName=", [0]),
    ("pods", "spec.nodeName!=", [1]),
    ("pods", "status.phase=Running", [1]),
    ("pods", "status.phase!=Running", [0]),
    ("pods", "status.phase=Pending,spec.nodeName=", [0]),
    ("pods", "spec.restartPolicy=Never", [1]),
    ("pods", "spec.serviceAccountName=default", [0, 1]),
    ("pods", "spec.schedulerName=contract.example", [0, 1]),
    ("pods", "status.podIP=", [0, 1]),
    ("pods", "metadata.name=NAME-1", [1]),
    ("secrets", "type=Opaque", [0]),
    ("secrets", "type!=Opaque", [1]),
    ("events", "involvedObject.name=s", [1]),
    ("events", "involvedObject.kind=Run,involvedObject.uid=u-1", [0, 1]),
    ("events", "involvedObject.apiVersion=kruntimes.io/v1alpha1,involvedObject.namespace=NS", [0, 1]),
    ("events", "type=Warning", [1]),
    ("events", "type!=Warning,reason=Tried", [0]),
]


@pytest.mark.parametrize(
    ("resource", "selector", "expected"), FIELDS, ids=[f"{row[0]}-{row[1] or 'empty'}" for row in FIELDS]
)
def test_field_selectors(api: Api, ns: str, fielded: str, resource: str, selector: str, expected: list[int]) -> None:
    selector = selector.replace("NAME", fielded).replace("NS", ns)
    body = api.get(at(resource, ns), labelSelector=f"of={fielded}", fieldSelector=selector).ok(200)
    assert [i["metadata"]["name"] for i in body["items"]] == [f"{fielded}-{i}" for i in expected]


BAD_FIELDS: list[tuple[str, str, str]] = [
    ("widgets", "spec.code=x", "field label not supported: spec.code"),
    ("widgets", "nonsense", "invalid selector: 'nonsense'; can't understand 'nonsense'"),
    ("widgets", ".spec.color=red", "field label not supported: .spec.color"),
    ("runs", "spec.timeout=5s", "field label not supported: spec.timeout"),
    ("plains", "spec.text=x", "field label not supported: spec.text"),
    ("pods", "spec.hostname=x", "field label not supported: spec.hostname"),
    ("pods", "status.hostIP=x", "field label not supported: status.hostIP"),
    ("configmaps", "data.a=1", '"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ("leases", "spec.holderIdentity=x", "is not a known field selector"),
    ("replicasets", "status.replicas=0", "is not a known field selector"),
    ("secrets", "data=x", "field label not supported: data"),
    ("nodes", "spec.providerID=x", "field label not supported: spec.providerID"),
    ("pods", "spec.nodeName=a\\b", "invalid field selector: invalid escape sequence"),
]


@pytest.mark.parametrize(
    ("resource", "selector", "message"), BAD_FIELDS, ids=[f"{row[0]}-{row[1]}" for row in BAD_FIELDS]
)
@pytest.mark.parametrize("verb", ["list", "watch", "delete"])
def test_field_selectors_that_are_none(
    api: Api, ns: str, verb: str, resource: str, selector: str, message: str
) -> None:
    """The same 400 for each verb, before anything is streamed or deleted."""
    path = at(resource, None if resource == "nodes" else ns)
    if verb == "delete":
        answer = api.delete(path, fieldSelector=selector)
    else:
        answer = api.get(path, fieldSelector=selector, **({"watch": "true"} if verb == "watch" else {}))
    answer.refused(400, "BadRequest", message)


CLUSTER: list[tuple[str, str]] = [
    ("namespaces", "status.phase=Active"),
    ("nodes", "spec.unschedulable=false"),
    ("services", "spec.clusterIP=None"),
    ("services", "spec.type=ClusterIP"),
    ("certificatesigningrequests", "spec.signerName=contract.example/x"),
    ("runs", "spec.runtime=python,status.phase=Ready"),
    ("runs", "status.assignedPodUID=x"),
]


@pytest.mark.parametrize(("resource", "selector"), CLUSTER, ids=[f"{row[0]}-{row[1]}" for row in CLUSTER])
def test_further_fields_that_can_be_selected(api: Api, resource: str, selector: str) -> None:
    api.get(at(resource), fieldSelector=selector).ok(200)


def test_a_namespaced_list_cannot_reach_another_namespace(api: Api, ns: str, name: str) -> None:
    make(api, "configmaps", ns, name)
    assert api.get(at("configmaps", "default"), fieldSelector=f"metadata.name={name}").ok(200)["items"] == []
