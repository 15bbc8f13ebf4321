"""Our CRDs on the embedded rules: the tables that a real API server is held to, without a server (design §10)."""

from typing import Any

import pytest
from tests.api import test_api_crd_changes as changes
from tests.api import test_api_crd_run as runs
from tests.api import test_api_crd_runtime as runtimes
from tests.api.api_server import merged

from kruntimes.common.api import manifests
from kruntimes.local.apiserver.api import private
from kruntimes.local.apiserver.custom import checks
from kruntimes.local.apiserver.custom.definitions import Definitions
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.schema.schema import Schema
from kruntimes.local.apiserver.status import invalid

Json = dict[str, Any]
CRDS = {crd["spec"]["names"]["kind"]: crd for crd in manifests.crds()}
SCHEMAS = {kind: Schema.compile(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) for kind, crd in CRDS.items()}


def said(obj: Json, old: Json | None = None, *, part: str = "") -> str:
    """What the server would say to *obj*; empty if it takes it."""
    obj = private(obj)
    obj["metadata"].setdefault("name", obj["metadata"].get("generateName", "x") + "abcde")
    schema = SCHEMAS[obj["kind"]]
    unknown = schema.fill(obj)
    if unknown:
        return ", ".join(f'unknown field "{path}"' for path in unknown)
    causes = schema.faults(obj, old, part=part)
    return invalid(RESOURCE.about_kind(), causes).message if causes else ""


RESOURCE = Resource(
    group="kruntimes.io", version="v1alpha1", plural="runs", singular="run", kind="Run", namespaced=True
)


def filled(obj: Json) -> Json:
    obj = private(obj)
    obj["metadata"].setdefault("name", "x")
    SCHEMAS[obj["kind"]].fill(obj)
    return obj


@pytest.mark.parametrize("kind", ["Run", "Runtime"])
def test_our_definitions_have_no_faults(kind: str) -> None:
    crd = private(CRDS[kind])
    Definitions(RESOURCE).default(crd)
    assert checks.definition(crd) == []


@pytest.mark.parametrize(("obj", "words"), [*runs.ACCEPTED, *runtimes.ACCEPTED])
def test_accepted(obj: Json, words: tuple[str, ...]) -> None:
    assert said(obj) == ""


@pytest.mark.parametrize(("obj", "words"), [*runs.REFUSED, *runtimes.REFUSED])
def test_refused(obj: Json, words: tuple[str, ...]) -> None:
    answer = said(obj)
    for word in words:
        assert word in answer


@pytest.mark.parametrize(("base", "spec", "words"), changes.REFUSED)
def test_changes_refused(base: Json, spec: Json, words: str) -> None:
    old = filled(base)
    assert words in said(merged(old, {"spec": spec}), old)


@pytest.mark.parametrize(("base", "spec"), changes.ACCEPTED)
def test_changes_accepted(base: Json, spec: Json) -> None:
    old = filled(base)
    assert said(merged(old, {"spec": spec}), old) == ""


@pytest.mark.parametrize("status", changes.STATUS_ACCEPTED)
def test_status_accepted(status: Json) -> None:
    old = filled(changes.FUNCTION)
    assert said(merged(old, {"status": status}), old, part="status") == ""


@pytest.mark.parametrize(("status", "words"), changes.STATUS_REFUSED)
def test_status_refused(status: Json, words: str) -> None:
    old = filled(changes.FUNCTION)
    assert words in said(merged(old, {"status": status}), old, part="status")
