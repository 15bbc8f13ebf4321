"""Options of lists and watches, pages, and what a path and a method ask for."""

import base64

import pytest

from kruntimes.local.apiserver.pages import MAX_MOMENTS, Pages
from kruntimes.local.apiserver.queries import is_watch, list_options, too_new, version, watch_options
from kruntimes.local.apiserver.request import ANONYMOUS, MAX_SEGMENTS, attributes
from kruntimes.local.apiserver.status import StatusError

PATHS: list[tuple[str, str, tuple[str, str, str, str, str, str, str]]] = [
    # method, path, (verb, group, version, namespace, resource, name, subresource)
    ("GET", "/api/v1/namespaces", ("list", "", "v1", "", "namespaces", "", "")),
    ("GET", "/api/v1/namespaces/a", ("get", "", "v1", "a", "namespaces", "a", "")),
    ("PUT", "/api/v1/namespaces/a/finalize", ("update", "", "v1", "a", "namespaces", "a", "finalize")),
    ("GET", "/api/v1/namespaces/a/pods", ("list", "", "v1", "a", "pods", "", "")),
    ("HEAD", "/api/v1/namespaces/a/pods/b", ("get", "", "v1", "a", "pods", "b", "")),
    ("POST", "/api/v1/namespaces/a/pods/b/binding", ("create", "", "v1", "a", "pods", "b", "binding")),
    ("GET", "/api/v1/nodes/a/proxy/b/c", ("get", "", "v1", "", "nodes", "a", "proxy/b/c")),
    ("PATCH", "/apis/k.io/v1/namespaces/a/runs/b/status", ("patch", "k.io", "v1", "a", "runs", "b", "status")),
    ("DELETE", "/apis/k.io/v1/namespaces/a/runs", ("deletecollection", "k.io", "v1", "a", "runs", "", "")),
    ("DELETE", "/apis/k.io/v1/runs/b/", ("delete", "k.io", "v1", "", "runs", "b", "")),
    ("GET", "/apis/k.io/v1", ("get", "", "", "", "", "", "")),
    ("GET", "/api/v1", ("get", "", "", "", "", "", "")),
    ("POST", "/version", ("post", "", "", "", "", "", "")),
    ("GET", "/", ("get", "", "", "", "", "", "")),
]


@pytest.mark.parametrize(("method", "path", "expected"), PATHS, ids=[f"{row[0]} {row[1]}" for row in PATHS])
def test_what_a_path_asks_for(method: str, path: str, expected: tuple[str, ...]) -> None:
    r = attributes(ANONYMOUS, method, path)
    assert (r.verb, r.group, r.version, r.namespace, r.resource, r.name, r.subresource) == expected
    assert r.is_resource == bool(expected[4])


def test_a_watch_is_a_verb_of_its_own() -> None:
    assert attributes(ANONYMOUS, "GET", "/api/v1/pods", watch=True).verb == "watch"
    assert attributes(ANONYMOUS, "GET", "/api/v1/namespaces/a/pods/b/log", watch=True).verb == "get"


def test_a_path_is_bounded() -> None:
    with pytest.raises(StatusError) as refused:
        attributes(ANONYMOUS, "GET", "/api/v1" + "/x" * MAX_SEGMENTS)
    assert refused.value.code == 404


@pytest.mark.parametrize(
    ("query", "watches"),
    [({}, False), ({"watch": "false"}, False), ({"watch": "0"}, False), ({"watch": ""}, True), ({"watch": "x"}, True)],
)
def test_what_counts_as_a_watch(query: dict[str, str], watches: bool) -> None:
    assert is_watch(query) == watches


LISTS: list[tuple[dict[str, str], str]] = [
    ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
    ({"resourceVersionMatch": "Nearly", "resourceVersion": "1"}, 'Unsupported value: "Nearly"'),
    ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 'forbidden for resourceVersion "0"'),
    ({"resourceVersionMatch": "Exact", "resourceVersion": "1", "continue": "x"}, "forbidden when continue is provided"),
    ({"continue": "x", "resourceVersion": "1"}, "specifying resource version is not allowed when using continue"),
    ({"resourceVersion": "x"}, 'parsing "x": invalid syntax'),
    ({"limit": "x"}, "strconv.ParseInt"),
    ({"timeoutSeconds": "1e3"}, "strconv.ParseInt"),
    ({"sendInitialEvents": "true"}, "sendInitialEvents is forbidden for list"),
    ({"sendInitialEvents": "maybe"}, "strconv.ParseBool"),
]


@pytest.mark.parametrize(("query", "message"), LISTS, ids=[str(row[0]) for row in LISTS])
def test_list_options_that_are_refused(query: dict[str, str], message: str) -> None:
    with pytest.raises(StatusError) as refused:
        list_options(query)
    assert message in refused.value.message
    assert refused.value.code in (400, 422)


def test_list_options() -> None:
    assert list_options({}).limit == 0
    assert list_options({"limit": "-5"}).limit == 0
    exact = list_options({"resourceVersion": "7", "resourceVersionMatch": "Exact", "limit": "3"})
    assert (exact.exact, exact.at_least, exact.limit) == (7, 7, 3)
    least = list_options({"resourceVersion": "7", "resourceVersionMatch": "NotOlderThan"})
    assert (least.exact, least.at_least) == (None, 7)


WATCHES: list[tuple[dict[str, str], tuple[int, bool, bool]]] = [
    # query, (since, whether it begins with objects, whether their end is marked)
    ({}, (0, True, False)),
    ({"resourceVersion": "0", "allowWatchBookmarks": "1"}, (0, True, True)),
    ({"resourceVersion": "5", "allowWatchBookmarks": "true"}, (5, False, False)),
    ({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "5"}, (5, True, False)),
    ({"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "t"},
     (0, False, False)),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), WATCHES, ids=[str(row[0]) for row in WATCHES])
def test_watch_options(query: dict[str, str], expected: tuple[int, bool, bool]) -> None:
    options = watch_options(query)
    assert (options.since, options.objects, options.mark_end) == expected


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ({"sendInitialEvents": "true"}, 422, "requires setting resourceVersionMatch to NotOlderThan"),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, 422, 'Unsupported value: "Exact"'),
        ({"resourceVersionMatch": "NotOlderThan"}, 422, "forbidden for watch unless sendInitialEvents"),
        ({"resourceVersion": "x"}, 500, 'resourceVersion: Invalid value: "x"'),
        ({"timeoutSeconds": "x"}, 400, "strconv.ParseInt"),
    ],
)
def test_watch_options_that_are_refused(query: dict[str, str], code: int, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        watch_options(query)
    assert refused.value.code == code
    assert message in refused.value.message


def test_versions_that_cannot_be_read() -> None:
    version("12")
    with pytest.raises(StatusError) as refused:
        version("x")
    assert (refused.value.code, refused.value.reason) == (500, "")
    future = too_new(9, 5).to_json()
    assert future["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


# ---------------------------------------------------------------- pages


def test_pages_of_one_moment() -> None:
    pages = Pages()
    items = [{"n": i} for i in range(5)]
    first = pages.first(items, 7, 2)
    second = pages.following(first.token, 2)
    third = pages.following(second.token, 2)
    assert [list(p.items) for p in (first, second, third)] == [items[:2], items[2:4], items[4:]]
    assert [(p.version, p.remaining, bool(p.token)) for p in (first, second, third)] == [
        (7, 3, True), (7, 1, True), (7, 0, False),
    ]  # fmt: skip
    assert list(pages.following(second.token, 0).items) == items[4:], "a page can be asked for again"


def test_a_list_that_fits_is_not_held() -> None:
    assert Pages().first([{}], 7, 1).token == ""
    assert Pages().first([{}, {}], 7, 0).token == ""


@pytest.mark.parametrize(
    "token", ["x", "!", base64.urlsafe_b64encode(b'{"start": 3}').decode(), base64.urlsafe_b64encode(b"[]").decode()]
)
def test_tokens_that_are_none(token: str) -> None:
    with pytest.raises(StatusError) as refused:
        Pages().following(token, 1)
    assert refused.value.code == 400


def test_moments_are_held_in_bounds_and_no_longer_than_the_history() -> None:
    pages = Pages()
    tokens = [pages.first([{}, {}], version, 1).token for version in range(1, MAX_MOMENTS + 2)]
    with pytest.raises(StatusError) as refused:
        pages.following(tokens[0], 1)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    assert pages.following(tokens[1], 1).version == 2
    pages.compact(3)
    with pytest.raises(StatusError):
        pages.following(tokens[1], 1)
    assert pages.following(tokens[2], 1).version == 3
