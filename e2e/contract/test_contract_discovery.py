"""What a client learns about the API itself: discovery documents, versions, health, and paths that are not there."""

from typing import Any

import pytest
from contract.client import JSON, MERGE_PATCH, Api, at
from contract.objects import make

ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
GROUPS = {
    "apps": "apps/v1",
    "coordination.k8s.io": "coordination.k8s.io/v1",
    "discovery.k8s.io": "discovery.k8s.io/v1",
    "rbac.authorization.k8s.io": "rbac.authorization.k8s.io/v1",
    "certificates.k8s.io": "certificates.k8s.io/v1",
    "apiextensions.k8s.io": "apiextensions.k8s.io/v1",
    "authorization.k8s.io": "authorization.k8s.io/v1",
    "authentication.k8s.io": "authentication.k8s.io/v1",
    "kruntimes.io": "kruntimes.io/v1alpha1",
}
CORE_ONLY_CREATE = ["create"]

RESOURCES: list[tuple[str, str, dict[str, Any]]] = [
    # path, name, what must stand in its entry of the resource list
    ("/api/v1", "configmaps", {"kind": "ConfigMap", "namespaced": True, "verbs": ALL, "shortNames": ["cm"]}),
    ("/api/v1", "secrets", {"kind": "Secret", "namespaced": True, "verbs": ALL}),
    ("/api/v1", "serviceaccounts", {"kind": "ServiceAccount", "namespaced": True, "verbs": ALL, "shortNames": ["sa"]}),
    ("/api/v1", "pods", {"kind": "Pod", "verbs": ALL, "shortNames": ["po"], "categories": ["all"]}),
    ("/api/v1", "services", {"kind": "Service", "verbs": ALL, "shortNames": ["svc"], "categories": ["all"]}),
    ("/api/v1", "events", {"kind": "Event", "verbs": ALL, "shortNames": ["ev"]}),
    ("/api/v1", "nodes", {"kind": "Node", "namespaced": False, "verbs": ALL, "shortNames": ["no"]}),
    ("/api/v1", "persistentvolumeclaims", {"kind": "PersistentVolumeClaim", "verbs": ALL, "shortNames": ["pvc"]}),
    # A namespace's collection cannot be deleted.
    ("/api/v1", "namespaces", {"kind": "Namespace", "namespaced": False, "shortNames": ["ns"],
                               "verbs": [v for v in ALL if v != "deletecollection"]}),
    ("/api/v1", "namespaces/status", {"kind": "Namespace", "singularName": "", "verbs": ["get", "patch", "update"]}),
    ("/api/v1", "namespaces/finalize", {"kind": "Namespace", "verbs": ["update"]}),
    ("/api/v1", "pods/status", {"kind": "Pod", "singularName": "", "verbs": ["get", "patch", "update"]}),
    ("/api/v1", "pods/binding", {"kind": "Binding", "verbs": CORE_ONLY_CREATE}),
    ("/api/v1", "pods/log", {"kind": "Pod", "verbs": ["get"]}),
    ("/api/v1", "pods/eviction", {"kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]}),
    ("/api/v1", "nodes/status", {"kind": "Node", "verbs": ["get", "patch", "update"]}),
    ("/api/v1", "services/status", {"kind": "Service", "verbs": ["get", "patch", "update"]}),
    ("/api/v1", "serviceaccounts/token", {"kind": "TokenRequest", "group": "authentication.k8s.io",
                                          "version": "v1", "verbs": ["create"]}),
    ("/apis/apps/v1", "replicasets", {"kind": "ReplicaSet", "verbs": ALL, "shortNames": ["rs"], "categories": ["all"]}),
    ("/apis/apps/v1", "replicasets/status", {"kind": "ReplicaSet", "verbs": ["get", "patch", "update"]}),
    ("/apis/apps/v1", "replicasets/scale", {"kind": "Scale", "group": "autoscaling", "version": "v1",
                                            "verbs": ["get", "patch", "update"]}),
    ("/apis/coordination.k8s.io/v1", "leases", {"kind": "Lease", "namespaced": True, "verbs": ALL}),
    ("/apis/discovery.k8s.io/v1", "endpointslices", {"kind": "EndpointSlice", "verbs": ALL}),
    ("/apis/rbac.authorization.k8s.io/v1", "roles", {"kind": "Role", "namespaced": True, "verbs": ALL}),
    ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", {"kind": "RoleBinding", "verbs": ALL}),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", {"kind": "ClusterRole", "namespaced": False, "verbs": ALL}),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", {"kind": "ClusterRoleBinding", "verbs": ALL}),
    ("/apis/certificates.k8s.io/v1", "certificatesigningrequests",
     {"kind": "CertificateSigningRequest", "namespaced": False, "verbs": ALL, "shortNames": ["csr"]}),
    ("/apis/certificates.k8s.io/v1", "certificatesigningrequests/approval", {"verbs": ["get", "patch", "update"]}),
    ("/apis/certificates.k8s.io/v1", "certificatesigningrequests/status", {"verbs": ["get", "patch", "update"]}),
    ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions",
     {"kind": "CustomResourceDefinition", "namespaced": False, "verbs": ALL, "shortNames": ["crd", "crds"],
      "categories": ["api-extensions"]}),
    ("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews", {"verbs": ["create"], "namespaced": False}),
    ("/apis/authorization.k8s.io/v1", "subjectaccessreviews", {"verbs": ["create"], "namespaced": False}),
    ("/apis/authorization.k8s.io/v1", "localsubjectaccessreviews", {"verbs": ["create"], "namespaced": True}),
    ("/apis/authorization.k8s.io/v1", "selfsubjectrulesreviews", {"verbs": ["create"], "namespaced": False}),
    ("/apis/authentication.k8s.io/v1", "selfsubjectreviews", {"verbs": ["create"], "namespaced": False}),
    ("/apis/authentication.k8s.io/v1", "tokenreviews", {"verbs": ["create"], "namespaced": False}),
    # The verbs of custom resources come in an order of their own.
    ("/apis/kruntimes.io/v1alpha1", "runs", {"kind": "Run", "singularName": "run", "shortNames": ["rn"],
                                             "categories": ["kruntimes"], "namespaced": True, "verbs": ALL}),
    ("/apis/kruntimes.io/v1alpha1", "runs/status", {"kind": "Run", "verbs": ["get", "patch", "update"]}),
    ("/apis/kruntimes.io/v1alpha1", "runtimes", {"kind": "Runtime", "shortNames": ["rt"], "verbs": ALL}),
    ("/apis/kruntimes.io/v1alpha1", "runtimes/scale", {"kind": "Scale", "group": "autoscaling", "version": "v1",
                                                       "verbs": ["get", "patch", "update"]}),
    ("/apis/contract.example/v1", "widgets", {"kind": "Widget", "shortNames": ["wd", "wdg"],
                                              "categories": ["contracts"]}),
]  # fmt: skip


def test_the_core_api_has_one_version(api: Api) -> None:
    """Unlike every other document, it carries no apiVersion."""
    body = api.get("/api").ok(200)
    assert (body["kind"], body["versions"]) == ("APIVersions", ["v1"])
    assert body["serverAddressByClientCIDRs"][0]["clientCIDR"] == "0.0.0.0/0"


@pytest.mark.parametrize(("group", "version"), [pytest.param(*item, id=item[0]) for item in GROUPS.items()])
def test_a_group_is_listed_and_has_a_document(api: Api, group: str, version: str) -> None:
    listed = api.get("/apis").ok(200)
    assert (listed["kind"], listed["apiVersion"]) == ("APIGroupList", "v1")
    entry = next(g for g in listed["groups"] if g["name"] == group)
    expected = {"groupVersion": version, "version": version.partition("/")[2]}
    assert entry["versions"] == [expected]
    assert entry["preferredVersion"] == expected
    document = api.get(f"/apis/{group}").ok(200)
    assert {"kind": "APIGroup", "apiVersion": "v1", **entry} == document


@pytest.mark.parametrize(
    ("path", "name", "expected"), [pytest.param(*row, id=f"{row[0].split('/')[-2]}-{row[1]}") for row in RESOURCES]
)
def test_a_resource_is_listed(api: Api, path: str, name: str, expected: dict[str, Any]) -> None:
    body = api.get(path).ok(200)
    assert body["kind"] == "APIResourceList"
    assert body["groupVersion"] == path.removeprefix("/apis/").removeprefix("/api/")
    entry = next(r for r in body["resources"] if r["name"] == name)
    if "verbs" in expected:
        entry["verbs"].sort()
    assert {key: entry.get(key) for key in expected} == expected
    if "/" not in name:
        assert entry["singularName"] == entry["kind"].lower()


def test_discovery_answers_those_who_ask_for_the_aggregated_form_with_something_they_know(api: Api) -> None:
    """kubectl asks for the aggregated document first and takes the plain one as well, told apart by content type."""
    accept = (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    )
    for path in ("/api", "/apis"):
        answer = api.get(path, accept=accept)
        kind = answer.ok(200)["kind"]
        aggregated = "as=APIGroupDiscoveryList" in answer.headers["content-type"]
        assert kind == (
            "APIGroupDiscoveryList" if aggregated else {"/api": "APIVersions", "/apis": "APIGroupList"}[path]
        )


def test_the_version(api: Api) -> None:
    body = api.get("/version").ok(200)
    assert (body["major"], body["minor"], body["gitVersion"][:6]) == ("1", "37", "v1.37.")
    assert {"gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"} <= body.keys()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
@pytest.mark.parametrize("who", ["administrator", "nobody"])
def test_health_is_open_to_everyone(api: Api, path: str, who: str) -> None:
    answer = (api if who == "administrator" else api.bearer(None)).get(path)
    assert (answer.code, answer.text) == (200, "ok")


def test_the_version_is_open_to_everyone(api: Api) -> None:
    assert api.bearer(None).get("/version").ok(200)["major"] == "1"


@pytest.mark.parametrize(
    "path", ["/nope", "/apis/nope.example", "/apis/nope.example/v1", "/apis/nope.example/v1/things"]
)
def test_a_path_of_nothing_is_404_in_plain_text(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.code, answer.text) == (404, "404 page not found\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v2",
        "/api/v1/nopes",
        "/api/v1/namespaces/default/nopes",
        "/api/v1/namespaces/default/nopes/x",
        "/api/v1/namespaces/default/pods/x/nope",
        "/apis/apps/v1/nopes",
        "/apis/apps/v2",
    ],
)
def test_an_unknown_resource_of_a_known_group_is_404_as_a_status(api: Api, path: str) -> None:
    body = api.get(path).refused(404, "NotFound", "the server could not find the requested resource")
    assert body["details"] == {}


@pytest.mark.parametrize(
    "path",
    ["/apis/contract.example/v1/nopes", "/apis/contract.example/v2/widgets", "/apis/contract.example/v9/widgets"],
)
def test_an_unknown_resource_of_a_custom_group_is_404_in_plain_text(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.code, answer.text) == (404, "404 page not found\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("PUT", at("namespaces"), id="replace-a-collection"),
        pytest.param("PATCH", at("namespaces"), id="patch-a-collection"),
        pytest.param("POST", at("namespaces", None, "default"), id="post-to-an-object"),
        pytest.param("POST", at("configmaps"), id="create-without-namespace"),
        pytest.param("DELETE", at("namespaces"), id="delete-all-namespaces"),
        pytest.param("DELETE", at("configmaps"), id="delete-in-all-namespaces"),
        pytest.param("GET", at("selfsubjectreviews"), id="list-reviews"),
        pytest.param("POST", at("pods", "default", "x", "status"), id="post-to-status"),
        pytest.param("GET", at("pods", "default", "x", "binding"), id="get-a-binding"),
        pytest.param("POST", "/version", id="post-to-the-version"),
    ],
)
def test_a_wrong_method_is_405(api: Api, method: str, path: str) -> None:
    api.call(method, path, {} if method != "GET" else None).refused(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_custom_objects_of_all_namespaces_can_only_be_read(api: Api, method: str) -> None:
    """Unlike the built-in 405 it is a plain 404."""
    answer = api.call(method, at("widgets"), {})
    assert (answer.code, answer.text) == (404, "404 page not found\n")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_custom_collection_has_no_name_to_write_to(api: Api, method: str) -> None:
    type = MERGE_PATCH if method == "PATCH" else JSON
    api.call(method, at("widgets", "default"), {}, type=type).refused(400, "BadRequest", "name must be provided")


def test_a_custom_subresource_cannot_be_created(api: Api) -> None:
    said = api.create(at("widgets", "default", "x", "status"), {}).refused(
        405, "MethodNotAllowed", 'create is not supported on resources of kind "widgets.contract.example"'
    )
    assert said["details"] == {"group": "contract.example", "kind": "widgets"}


@pytest.mark.parametrize(
    ("resource", "sub"), [("plains", "status"), ("plains", "scale"), ("runs", "scale"), ("widgets", "nope")]
)
def test_a_subresource_that_a_custom_kind_lacks_is_404_as_if_the_object_were_not_there(
    api: Api, ns: str, name: str, resource: str, sub: str
) -> None:
    make(api, resource, ns, name)
    api.get(at(resource, ns, name, sub)).refused(404, "NotFound", f'"{name}" not found')
