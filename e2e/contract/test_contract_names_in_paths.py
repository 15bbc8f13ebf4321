"""Names in paths that need escaping, and who acts for whom by headers."""

import pytest
from contract.client import Api, at
from contract.objects import make
from contract.people import user

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


@pytest.mark.parametrize("escaped", [True, False])
def test_a_colon_in_a_name(api: Api, name: str, escaped: bool) -> None:
    full = f"system:contract:{name}"
    make(api, "clusterroles", None, full)
    path = at("clusterroles", None, full.replace(":", "%3A") if escaped else full)
    assert api.get(path).ok(200)["metadata"]["name"] == full
    api.delete(path).ok(200)


@pytest.mark.parametrize("path", ["/api/", "/apis/"])
def test_a_slash_at_the_end(api: Api, path: str) -> None:
    assert api.get(path).code == 200


def test_a_name_of_dots_in_a_path_is_no_way_out(api: Api, ns: str) -> None:
    """`..` is never taken for the folder above."""
    raw = f"/api/v1/namespaces/{ns}/configmaps/%2e%2e"
    assert api.get(raw).code in (400, 404)


def test_the_administrator_acts_for_someone(api: Api, ns: str, name: str) -> None:
    """Impersonate-User, with groups where they are given."""
    headers = [("impersonate-user", name), ("impersonate-group", "g1"), ("impersonate-group", "g2")]
    answer = api.http.post(at("selfsubjectreviews"), json=REVIEW, headers=headers)
    assert answer.status_code == 201, answer.text
    info = answer.json()["status"]["userInfo"]
    assert info["username"] == name
    assert info["groups"] == ["g1", "g2", "system:authenticated"]


def test_acting_for_an_account(api: Api, ns: str, name: str) -> None:
    """The groups of a ServiceAccount come with its name."""
    who = f"system:serviceaccount:{ns}:{name}"
    answer = api.http.post(at("selfsubjectreviews"), json=REVIEW, headers={"impersonate-user": who})
    groups = answer.json()["status"]["userInfo"]["groups"]
    assert groups == ["system:serviceaccounts", f"system:serviceaccounts:{ns}", "system:authenticated"]


def test_acting_for_someone_takes_their_rights_only(api: Api, ns: str, name: str) -> None:
    answer = api.http.get(at("secrets", ns), headers={"impersonate-user": name})
    assert answer.status_code == 403
    assert f'User "{name}" cannot list resource "secrets"' in answer.json()["message"]


def test_acting_for_others_is_a_right(api: Api, ns: str, name: str) -> None:
    client = user(api, ns, name, [])
    answer = client.http.get(at("configmaps", ns), headers={"impersonate-user": "admin"})
    assert answer.status_code == 403
    assert "cannot impersonate" in answer.json()["message"]


def test_groups_without_a_user(api: Api, ns: str) -> None:
    answer = api.http.get(at("configmaps", ns), headers={"impersonate-group": "g"})
    assert answer.status_code == 400
