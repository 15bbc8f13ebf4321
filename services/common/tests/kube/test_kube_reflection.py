"""The rules of a reflector, without a socket."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruntimes.common.api.views import Lease, Object
from kruntimes.common.kube.reflection import Broken, Expired, Reflection


def _obj(name: str, version: int, uid: str = "u", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}} | more


def _raw(*args: Any, **more: Any) -> bytes:
    return json.dumps(_obj(*args, **more)).encode()


def _line(kind: str, obj: object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode()


def _known(*names: str) -> Reflection[Object]:
    core = Reflection(Object)
    core.replace([_raw(name, 1) for name in names], "1")
    return core


def test_a_relist_that_lacks_an_object_deletes_it_before_it_shows_the_rest() -> None:
    core = _known("a", "b")
    assert core.replace([_raw("b", 2), _raw("c", 3)], "3") == ["ns/a", "ns/b", "ns/c"]
    assert sorted(core.store) == ["ns/b", "ns/c"]
    assert core.version == "3"


def test_an_unchanged_object_is_no_change() -> None:
    core = _known("a")
    assert core.replace([_raw("a", 1)], "5") == []
    assert core.apply(_line("MODIFIED", _obj("a", 1))) is None


def test_an_object_made_anew_under_the_same_name_and_version_is_a_change() -> None:
    core = _known("a")
    assert core.replace([_raw("a", 1, uid="other")], "5") == ["ns/a"]


@pytest.mark.parametrize(
    ("line", "key", "version", "names"),
    [
        pytest.param(_line("ADDED", _obj("b", 7)), "ns/b", "7", ["ns/a", "ns/b"], id="added"),
        pytest.param(_line("MODIFIED", _obj("a", 7)), "ns/a", "7", ["ns/a"], id="modified"),
        pytest.param(_line("DELETED", _obj("a", 7)), "ns/a", "7", [], id="deleted"),
        pytest.param(_line("DELETED", _obj("x", 7)), None, "7", ["ns/a"], id="deleted-unknown"),
        pytest.param(_line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}), None, "9", ["ns/a"], id="bookmark"),
        pytest.param(_line("ADDED", {"metadata": {"name": "node"}}), "node", "1", ["node", "ns/a"], id="no-namespace"),
    ],
)
def test_events(line: bytes, key: str | None, version: str, names: list[str]) -> None:
    core = _known("a")
    assert core.apply(line) == key
    assert core.version == version
    assert sorted(core.store) == names


@pytest.mark.parametrize(
    ("line", "error"),
    [
        pytest.param(_line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}), Expired, id="410"),
        pytest.param(_line("ERROR", {"kind": "Status", "code": 500, "reason": "x"}), Broken, id="500"),
        pytest.param(_line("ERROR", {"kind": "Status", "code": 429, "reason": "x"}), Broken, id="429"),
        pytest.param(_line("ERROR", "text"), Broken, id="error-without-status"),
        pytest.param(b'{"kind":"Status","code":410}', Broken, id="a-status-in-place-of-events"),
        pytest.param(b"<html>", Broken, id="html"),
        pytest.param(b'{"type":"ADDED","object":{"metadata"', Broken, id="truncated"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}', Broken, id="not-utf-8"),
        pytest.param(_line("SYNC", _obj("a", 2)), Broken, id="unknown-type"),
        pytest.param(_line("ADDED", [1]), Broken, id="no-object"),
    ],
)
def test_what_is_wrong_with_a_stream_changes_nothing(line: bytes, error: type[Exception]) -> None:
    core = _known("a")
    with pytest.raises(error):
        core.apply(line)
    assert list(core.store) == ["ns/a"]
    assert core.version == "1"


def _lease(name: str, version: int, seconds: object) -> dict[str, Any]:
    return _obj(name, version, spec={"leaseDurationSeconds": seconds})


def test_an_object_that_cannot_be_decoded_is_counted_and_what_was_known_stays() -> None:
    core = Reflection(Lease)
    core.replace([json.dumps(_lease("a", 1, 30)).encode(), json.dumps(_lease("b", 1, "soon")).encode()], "1")
    assert list(core.store) == ["ns/a"]
    assert core.apply(_line("MODIFIED", _lease("a", 2, "soon"))) is None
    assert core.version == "2"
    assert core.replace([json.dumps(_lease("a", 3, "soon")).encode()], "3") == []
    assert core.store["ns/a"].spec.lease_duration_seconds == 30
    assert core.undecodable == 3
    assert core.apply(_line("DELETED", _lease("a", 4, "soon"))) == "ns/a"


def test_an_expired_version_keeps_what_is_known_until_the_list_has_come() -> None:
    core = _known("a")
    core.expire()
    assert core.version is None
    assert list(core.store) == ["ns/a"]


_EVENTS = st.lists(st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.sampled_from("abcd")), max_size=30)


@given(_EVENTS, st.sets(st.integers(0, 30)))
def test_events_and_relists_lead_to_the_same_store(events: list[tuple[str, str]], relists: set[int]) -> None:
    core, truth, notified = Reflection(Object), {}, {}
    for number, (kind, name) in enumerate(events, start=1):
        if kind == "DELETED":
            truth.pop(f"ns/{name}", None)
        else:
            truth[f"ns/{name}"] = str(number)
        if number in relists:
            keys = core.replace([_raw(key[3:], int(version)) for key, version in truth.items()], str(number))
        else:
            key = core.apply(_line(kind, _obj(name, number)))
            keys = [key] if key else []
        for key in keys:
            if key in core.store:
                notified[key] = core.store[key].metadata.resource_version
            else:
                del notified[key]
        assert {key: found.metadata.resource_version for key, found in core.store.items()} == truth == notified
