"""The OpenAPI documents that `kubectl explain` and client-side validation read."""

import json

import pytest
from contract.client import Api, Json, eventually

PATHS = {
    "api/v1": "/api/v1",
    "apis/apps/v1": "apps/v1",
    "apis/kruntimes.io/v1alpha1": "kruntimes.io/v1alpha1",
    "apis/contract.example/v1": "contract.example/v1",
    "apis/rbac.authorization.k8s.io/v1": "rbac.authorization.k8s.io/v1",
}


def document(api: Api, path: str) -> Json:
    """The document behind an entry of the index."""
    entry = json.loads(api.get("/openapi/v3").text)["paths"][path]
    answer = api.http.get(entry["serverRelativeURL"], headers={"accept": "application/json"})
    assert answer.status_code == 200
    found: Json = answer.json()
    return found


def schema_of(found: Json, group: str, version: str, kind: str) -> Json:
    """The schema of a kind, by its extension."""
    wanted = {"group": group, "version": version, "kind": kind}
    for schema in found["components"]["schemas"].values():
        if wanted in schema.get("x-kubernetes-group-version-kind", []):
            result: Json = schema
            return result
    raise AssertionError(f"no {kind}")


@pytest.mark.parametrize("path", sorted(PATHS))
def test_the_index(api: Api, path: str) -> None:
    """Each entry leads to a document, by a URL that changes with its content."""
    # The real server writes the document of a definition a moment after it serves its objects.
    entry = eventually(path, lambda: json.loads(api.get("/openapi/v3").text)["paths"].get(path))
    assert entry["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")
    found = document(api, path)
    assert found["openapi"].startswith("3.0")
    assert found["components"]["schemas"]


@pytest.mark.parametrize("kind", ["Run", "Runtime"])
def test_kinds_of_kruntimes_are_explained(api: Api, kind: str) -> None:
    schema = schema_of(document(api, "apis/kruntimes.io/v1alpha1"), "kruntimes.io", "v1alpha1", kind)
    assert schema["description"].startswith(f"A {kind} is ")
    assert {"apiVersion", "kind", "metadata", "spec", "status"} <= set(schema["properties"])
    assert schema["required"] == ["spec"]


def test_fields_of_a_run_are_explained(api: Api) -> None:
    schema = schema_of(document(api, "apis/kruntimes.io/v1alpha1"), "kruntimes.io", "v1alpha1", "Run")
    timeout = schema["properties"]["spec"]["properties"]["timeout"]
    assert timeout["description"].startswith("Longest life of the Run")
    isolation = schema["properties"]["spec"]["properties"]["mode"]["properties"]["function"]["properties"]["isolation"]
    assert (isolation["enum"], isolation["default"]) == (["Worker", "Fork"], "Worker")


@pytest.mark.parametrize("kind", ["Pod", "ConfigMap", "Namespace", "ServiceAccount"])
def test_built_in_kinds_are_known(api: Api, kind: str) -> None:
    schema = schema_of(document(api, "api/v1"), "", "v1", kind)
    assert "metadata" in schema["properties"]


@pytest.mark.parametrize("plural", ["runs", "runtimes"])
def test_kubectl_learns_that_the_server_validates(api: Api, plural: str) -> None:
    """It looks for the query parameter `fieldValidation` of the PATCH operation of a kind."""
    found = document(api, "apis/kruntimes.io/v1alpha1")
    patch = found["paths"][f"/apis/kruntimes.io/v1alpha1/namespaces/{{namespace}}/{plural}/{{name}}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "kruntimes.io",
        "version": "v1alpha1",
        "kind": plural.capitalize()[:-1],
    }
    assert "fieldValidation" in {parameter.get("name") for parameter in patch["parameters"]}
