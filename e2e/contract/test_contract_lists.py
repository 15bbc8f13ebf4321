"""Lists: pages, versions, order, and label and field selectors with what they refuse."""

import base64
import json
from collections.abc import Callable

import pytest
from contract.client import Api, Json, at
from contract.objects import make

BOTH = pytest.mark.parametrize("resource", ["configmaps", "widgets"])


def names(body: Json) -> list[str]:
    """The names in a list, in its order."""
    return [item["metadata"]["name"] for item in body["items"]]


# ---------------------------------------------------------------- pages


@BOTH
def test_pages(api: Api, new_namespace: Callable[[], str], resource: str) -> None:
    """Every page shows the collection as it was at the first one, and the last one has no `continue`."""
    ns = new_namespace()
    for i in range(5):
        make(api, resource, ns, f"a{i}", meta={"labels": {"paged": "yes"}})
    select = {"labelSelector": "paged=yes"}
    first = api.get(at(resource, ns), limit="2", **select).ok(200)
    assert names(first) == ["a0", "a1"]
    make(api, resource, ns, "a9", meta={"labels": {"paged": "yes"}})
    api.delete(at(resource, ns, "a3")).ok(200)
    second = api.get(at(resource, ns), limit="2", **{"continue": first["metadata"]["continue"]}, **select).ok(200)
    assert names(second) == ["a2", "a3"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = api.get(at(resource, ns), limit="2", **{"continue": second["metadata"]["continue"]}, **select).ok(200)
    assert names(third) == ["a4"]
    assert third["metadata"].get("continue", "") == ""
    assert "remainingItemCount" not in third["metadata"]
    assert names(api.get(at(resource, ns), **select).ok(200)) == ["a0", "a1", "a2", "a4", "a9"]


@BOTH
def test_remaining_items_are_counted_where_nothing_is_selected(
    api: Api, new_namespace: Callable[[], str], resource: str
) -> None:
    ns = new_namespace()
    for i in range(4):
        make(api, resource, ns, f"a{i}", meta={"labels": {"counted": "yes"}})
    total = len(api.get(at(resource, ns)).ok(200)["items"])
    page = api.get(at(resource, ns), limit="1").ok(200)
    assert page["metadata"]["remainingItemCount"] == total - 1
    selected = api.get(at(resource, ns), limit="1", labelSelector="counted=yes").ok(200)
    assert "remainingItemCount" not in selected["metadata"]
    assert selected["metadata"]["continue"]


@BOTH
def test_a_limit_that_is_not_reached(api: Api, ns: str, name: str, resource: str) -> None:
    make(api, resource, ns, name, meta={"labels": {"one": name}})
    body = api.get(at(resource, ns), limit="500", labelSelector=f"one={name}").ok(200)
    assert names(body) == [name]
    assert body["metadata"].get("continue", "") == ""


PAGES: list[tuple[str, dict[str, str], int, str, str]] = [
    ("nonsense", {"continue": "nonsense"}, 400, "BadRequest", "continue key is not valid"),
    ("not-json", {"continue": base64.urlsafe_b64encode(b"{nope").decode().rstrip("=")}, 400, "BadRequest",
     "continue key is not valid"),
    ("with-a-version", {"continue": "TOKEN", "resourceVersion": "5"}, 400, "BadRequest",
     "specifying resource version is not allowed when using continue"),
    ("limit-word", {"limit": "many"}, 400, "BadRequest", 'strconv.ParseInt: parsing "many": invalid syntax'),
    ("limit-negative", {"limit": "-1"}, 200, "", ""),
    ("limit-zero", {"limit": "0"}, 200, "", ""),
    ("match-without-version", {"resourceVersionMatch": "Exact"}, 422, "Invalid",
     "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
    ("match-unknown", {"resourceVersion": "0", "resourceVersionMatch": "Nearly"}, 422, "Invalid",
     'resourceVersionMatch: Unsupported value: "Nearly": supported values: "Exact", "NotOlderThan"'),
    ("exact-zero", {"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422, "Invalid",
     'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
    ("version-word", {"resourceVersion": "soon"}, 400, "BadRequest",
     'invalid resource version: resourceVersion: Invalid value: "soon": strconv.ParseUint: parsing "soon": '),
    ("any-version", {"resourceVersion": "0"}, 200, "", ""),
    ("any-not-older", {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"}, 200, "", ""),
    ("initial-events-without-watch", {"sendInitialEvents": "true"}, 422, "Invalid",
     "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
    ("timeout-word", {"timeoutSeconds": "soon"}, 400, "BadRequest",
     'strconv.ParseInt: parsing "soon": invalid syntax'),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(("query", "code", "reason", "message"), [pytest.param(*row[1:], id=row[0]) for row in PAGES])
def test_list_options(
    api: Api, ns: str, name: str, resource: str, query: dict[str, str], code: int, reason: str, message: str
) -> None:
    if query.get("continue") == "TOKEN":
        for i in range(2):
            make(api, resource, ns, f"{name}-{i}")
        query = {**query, "continue": api.get(at(resource, ns), limit="1").ok(200)["metadata"]["continue"]}
    answer = api.get(at(resource, ns), **query)
    if code == 200:
        answer.ok(200)
    else:
        answer.refused(code, reason, message)


# ---------------------------------------------------------------- versions


@BOTH
def test_a_list_is_as_new_as_the_last_write(api: Api, ns: str, name: str, resource: str) -> None:
    """Without a resourceVersion a list sees every write that was answered before it was asked."""
    for i in range(5):
        meta = make(api, resource, ns, f"{name}-{i}", meta={"labels": {"fresh": name}})["metadata"]
        body = api.get(at(resource, ns), labelSelector=f"fresh={name}").ok(200)
        assert len(body["items"]) == i + 1
        assert int(body["metadata"]["resourceVersion"]) >= int(meta["resourceVersion"])


@BOTH
@pytest.mark.parametrize("match", [None, "NotOlderThan"])
def test_a_list_not_older_than_a_write_sees_it(api: Api, ns: str, name: str, resource: str, match: str | None) -> None:
    version = make(api, resource, ns, name)["metadata"]["resourceVersion"]
    more = {} if match is None else {"resourceVersionMatch": match}
    body = api.get(at(resource, ns), resourceVersion=version, **more).ok(200)
    assert name in names(body)
    assert int(body["metadata"]["resourceVersion"]) >= int(version)


@BOTH
def test_a_list_at_an_exact_version(api: Api, ns: str, name: str, resource: str) -> None:
    for i in range(2):
        made = make(api, resource, ns, f"{name}-{i}", meta={"labels": {"exact": name}})
    version = made["metadata"]["resourceVersion"]
    api.delete(at(resource, ns, f"{name}-0")).ok(200)
    body = api.get(
        at(resource, ns), resourceVersion=version, resourceVersionMatch="Exact", labelSelector=f"exact={name}"
    ).ok(200)
    assert names(body) == [f"{name}-0", f"{name}-1"]
    assert body["metadata"]["resourceVersion"] == version


def test_a_list_of_the_future_is_504_and_asks_to_come_again(api: Api, ns: str) -> None:
    """After the server has waited for three seconds; for built-in and custom kinds alike."""
    answer = api.get(at("widgets", ns), resourceVersion="999999999999")
    said = answer.refused(504, "Timeout", "Too large resource version: 999999999999, current: ")
    assert said["details"]["causes"] == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert said["details"]["retryAfterSeconds"] == 1
    assert answer.headers["retry-after"] == "1"


@BOTH
def test_a_get_of_any_version(api: Api, ns: str, name: str, resource: str) -> None:
    made = make(api, resource, ns, name)
    path = at(resource, ns, name)
    assert api.get(path, resourceVersion=made["metadata"]["resourceVersion"]).ok(200) == made
    api.get(path, resourceVersion="x").refused(500, "", 'resourceVersion: Invalid value: "x"')


@BOTH
def test_the_order_is_by_namespace_and_name(api: Api, new_namespace: Callable[[], str], resource: str) -> None:
    spaces = sorted((new_namespace(), new_namespace()))
    for ns in reversed(spaces):
        for name in ("b", "a-b", "a", "ab", "a.b"):
            make(api, resource, ns, name, meta={"labels": {"sorted": spaces[0]}})
    body = api.get(at(resource), labelSelector=f"sorted={spaces[0]}").ok(200)
    found = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in body["items"]]
    assert found == [(ns, name) for ns in spaces for name in ("a", "a-b", "a.b", "ab", "b")]


def test_an_empty_list(api: Api, new_namespace: Callable[[], str]) -> None:
    ns = new_namespace()
    for resource in ("leases", "widgets", "runs", "pods"):
        body = api.get(at(resource, ns)).ok(200)
        assert body["items"] == []
        assert int(body["metadata"]["resourceVersion"]) > 0


@pytest.mark.parametrize("resource", ["configmaps", "widgets", "pods"])
def test_a_list_in_a_namespace_that_is_not_there_is_empty(api: Api, name: str, resource: str) -> None:
    assert api.get(at(resource, name)).ok(200)["items"] == []


def test_a_continue_token_tells_its_version(api: Api, ns: str, name: str) -> None:
    """Nobody may rely on it; but a token whose version is long gone is 410, which a forged one shows."""
    for i in range(2):
        make(api, "configmaps", ns, f"{name}-{i}")
    token = api.get(at("configmaps", ns), limit="1").ok(200)["metadata"]["continue"]
    inner = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert set(inner) == {"v", "rv", "start"}
