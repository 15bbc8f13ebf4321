"""ServiceAccount tokens: their form, and when they are worth nothing any more."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.apiserver.plane import KEY, POD, START, Plane

from kruntimes.local.apiserver.request import ANONYMOUS, Credentials
from kruntimes.local.apiserver.status import StatusError
from kruntimes.local.apiserver.tokens import BadToken, TokenKey

BY_POD: dict[str, Any] = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}


@pytest.fixture
def plane() -> Plane:
    """A control plane with a Pod of ServiceAccount `sa` on a Node."""
    plane = Plane()
    plane.make("serviceaccounts", "sa")
    plane.make("serviceaccounts", "other")
    plane.make("nodes", "n", namespace="")
    plane.make("secrets", "s")
    plane.make("pods", "p", spec={**POD, "serviceAccountName": "sa", "nodeName": "n"})
    return plane


def claims_of(token: str) -> Any:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def uid(plane: Plane, plural: str, name: str) -> str:
    found = plane.found(plural, name)
    assert found is not None
    return str(found["metadata"]["uid"])


def test_a_token_carries_the_claims_of_a_real_one(plane: Plane) -> None:
    claims = claims_of(plane.token("sa", **BY_POD, expirationSeconds=700))
    assert claims.pop("jti")
    assert claims == {
        "aud": ["https://kubernetes.default.svc.cluster.local"],
        "exp": int(START.timestamp()) + 700,
        "iat": int(START.timestamp()),
        "nbf": int(START.timestamp()),
        "iss": "https://kubernetes.default.svc.cluster.local",
        "sub": "system:serviceaccount:default:sa",
        "kubernetes.io": {
            "namespace": "default",
            "node": {"name": "n", "uid": uid(plane, "nodes", "n")},
            "pod": {"name": "p", "uid": uid(plane, "pods", "p")},
            "serviceaccount": {"name": "sa", "uid": uid(plane, "serviceaccounts", "sa")},
        },
    }


def test_its_bearer_is_the_account_with_its_groups_and_its_pod(plane: Plane) -> None:
    token = plane.token("sa", **BY_POD)
    found = plane.who(token)
    assert found.name == "system:serviceaccount:default:sa"
    assert found.uid == uid(plane, "serviceaccounts", "sa")
    assert found.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
    assert found.extra == {
        "authentication.kubernetes.io/credential-id": (f"JTI={claims_of(token)['jti']}",),
        "authentication.kubernetes.io/node-name": ("n",),
        "authentication.kubernetes.io/node-uid": (uid(plane, "nodes", "n"),),
        "authentication.kubernetes.io/pod-name": ("p",),
        "authentication.kubernetes.io/pod-uid": (uid(plane, "pods", "p"),),
    }


def recreated(plural: str, name: str) -> Callable[[Plane], None]:
    def change(plane: Plane) -> None:
        before = plane.found(plural, name)
        assert before is not None
        namespace = before["metadata"].get("namespace", "")
        plane.api.delete(plane.of(plural), namespace, name)
        spec: dict[str, Any] = {"spec": {**POD, "serviceAccountName": "sa"}} if plural == "pods" else {}
        plane.make(plural, name, **spec)

    return change


def gone(plural: str, name: str) -> Callable[[Plane], None]:
    def change(plane: Plane) -> None:
        found = plane.found(plural, name)
        assert found is not None
        plane.api.store.remove(plane.of(plural), found["metadata"].get("namespace", ""), name)

    return change


def later(seconds: float) -> Callable[[Plane], None]:
    return lambda plane: plane.pass_time(seconds)


BY_SECRET = {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"}}
BY_NODE = {"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "n"}}


@pytest.mark.parametrize(
    ("spec", "change", "believed"),
    [
        pytest.param({}, later(0), True, id="fresh"),
        pytest.param({}, later(3600 + 59), True, id="expired-within-the-leeway"),
        pytest.param({}, later(3600 + 61), False, id="expired"),
        pytest.param({}, later(-61), False, id="of-the-future"),
        pytest.param({"audiences": ["vault"]}, later(0), False, id="for-another-audience"),
        pytest.param(
            {"audiences": ["vault", "https://kubernetes.default.svc.cluster.local"]}, later(0), True, id="for-us-too"
        ),
        pytest.param({}, gone("serviceaccounts", "sa"), False, id="account-gone"),
        pytest.param({}, recreated("serviceaccounts", "sa"), False, id="account-made-again"),
        pytest.param({}, gone("pods", "p"), True, id="pod-gone-and-not-bound"),
        pytest.param(BY_POD, gone("pods", "p"), False, id="pod-gone"),
        pytest.param(BY_POD, gone("nodes", "n"), True, id="node-of-the-pod-gone"),
        pytest.param(BY_SECRET, later(0), True, id="secret"),
        pytest.param(BY_SECRET, gone("secrets", "s"), False, id="secret-gone"),
        pytest.param(BY_SECRET, recreated("secrets", "s"), False, id="secret-made-again"),
        pytest.param(BY_NODE, gone("nodes", "n"), False, id="node-gone"),
    ],
)
def test_a_token_is_worth_as_much_as_its_objects(
    plane: Plane, spec: dict[str, Any], change: Callable[[Plane], None], believed: bool
) -> None:
    token = plane.token("sa", **spec)
    assert believed or "audiences" in spec or plane.who(token)
    change(plane)
    if believed:
        assert plane.who(token).name == "system:serviceaccount:default:sa"
    else:
        with pytest.raises(StatusError) as refused:
            plane.who(token)
        assert (refused.value.code, refused.value.reason) == (401, "Unauthorized")


def test_the_token_of_a_deleted_pod_counts_until_its_end_has_passed(plane: Plane) -> None:
    token = plane.token("sa", **BY_POD)
    plane.remove("pods", "p")
    pod = plane.found("pods", "p")
    assert pod is not None, "it has a node, which ends it"
    plane.pass_time(pod["metadata"]["deletionGracePeriodSeconds"] + 59)
    assert plane.who(token)
    plane.pass_time(2)
    with pytest.raises(StatusError):
        plane.who(token)


def tampered(token: str) -> str:
    head, _, signature = token.split(".")
    claims = claims_of(token)
    claims["sub"] = "system:serviceaccount:default:other"
    other = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{head}.{other}.{signature}"


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda token: "hello", id="a-word"),
        pytest.param(lambda token: "a.b.c", id="three-words"),
        pytest.param(lambda token: "ä.ö.ü", id="not-ascii"),
        pytest.param(lambda token: token[:-4], id="cut"),
        pytest.param(lambda token: token + "A", id="longer"),
        pytest.param(lambda token: token + "=", id="padded"),
        pytest.param(lambda token: token.rpartition(".")[0] + ".", id="no-signature"),
        pytest.param(tampered, id="other-claims"),
        pytest.param(lambda token: TokenKey.generate().sign(claims_of(token)), id="other-key"),
        pytest.param(lambda token: KEY.sign({**claims_of(token), "iss": "https://example.com"}), id="other-issuer"),
        pytest.param(lambda token: KEY.sign({"iss": claims_of(token)["iss"]}), id="no-claims"),
        pytest.param(lambda token: "." * 9000, id="very-long"),
    ],
)
def test_what_is_not_ours_is_refused_each_time(plane: Plane, spoil: Callable[[str], str]) -> None:
    bad = spoil(plane.token("sa"))
    for _ in range(2):
        with pytest.raises(StatusError) as refused:
            plane.who(bad)
        assert refused.value.code == 401


@pytest.mark.parametrize("header", [None, "", "Basic abc", "Bearer", "Bearer ", "Bearer  x", "Token x"])
def test_who_shows_no_token_is_anonymous(plane: Plane, header: str | None) -> None:
    assert plane.api.parts.authenticate(Credentials(authorization=header)) == ANONYMOUS


def test_the_scheme_is_read_in_any_case(plane: Plane) -> None:
    token = plane.token("sa")
    assert plane.api.parts.authenticate(Credentials(authorization=f"bearer {token}")).name.endswith(":sa")


@pytest.mark.parametrize(
    ("spec", "code", "says"),
    [
        pytest.param({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes", id="short"),
        pytest.param({"expirationSeconds": 1 << 33}, 422, "larger than 2^32 seconds", id="long"),
        pytest.param({"expirationSeconds": "1h"}, 400, "expirationSeconds of type int64", id="text"),
        pytest.param(
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}, 404, 'pods "none"', id="no-pod"
        ),
        pytest.param(
            {"boundObjectRef": {**BY_POD["boundObjectRef"], "uid": "x"}}, 409, "does not match the UID", id="other-uid"
        ),
        pytest.param(
            {"boundObjectRef": {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "name": "l"}},
            400, "cannot bind token to object of type coordination.k8s.io/v1, Kind=Lease", id="other-kind",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_granted(plane: Plane, spec: dict[str, Any], code: int, says: str) -> None:
    with pytest.raises(StatusError) as refused:
        plane.token("sa", **spec)
    assert refused.value.code == code
    assert says in refused.value.message


def test_a_token_is_not_bound_to_another_accounts_pod(plane: Plane) -> None:
    with pytest.raises(StatusError) as refused:
        plane.token("other", **BY_POD)
    assert refused.value.code == 400
    assert "different serviceaccount name" in refused.value.message


def test_a_key_comes_back_from_its_file() -> None:
    again = TokenKey.from_pem(KEY.to_pem())
    assert again.id == KEY.id
    assert again.claims(KEY.sign({"a": 1})) == {"a": 1}
    with pytest.raises(BadToken):
        TokenKey.generate().claims(KEY.sign({"a": 1}))


def test_a_request_is_about_the_account_of_its_path(plane: Plane) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/sa/token"
    assert plane.post(path, {"metadata": {"name": "sa", "namespace": "default"}})["status"]["token"]
    with pytest.raises(StatusError) as refused:
        plane.post(path, {"metadata": {"name": "other"}})
    assert refused.value.code == 422
    assert "must match the service account name if specified" in refused.value.message
