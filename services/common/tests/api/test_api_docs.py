"""The reference for users says what the API server does."""

import re
from pathlib import Path

import pytest
import yaml
from tests.api.api_server import GROUP, Json, Server

from kruntimes.common.api.phases import Phase
from kruntimes.common.api.reasons import Reason, RunCondition, RuntimeCondition

PAGE = (Path(__file__).parents[4] / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES: list[Json] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e['kind']}-{next(iter(e['metadata'].values()))}")
def test_examples_are_accepted(server: Server, namespace: str, example: Json) -> None:
    path = f"{GROUP}/namespaces/{namespace}/{example['kind'].lower()}s"
    server.done("POST", path, example, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize("word", [*Phase, *Reason, *RunCondition, *RuntimeCondition])
def test_every_word_of_the_api_is_explained(word: str) -> None:
    assert re.search(rf"\b{word}\b", PAGE)


@pytest.mark.parametrize("kind", ["runs", "runtimes"])
def test_every_field_of_a_spec_is_explained(server: Server, kind: str) -> None:
    crd = server.done("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}.kruntimes.io")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        for field in schema[part]["properties"]:
            assert re.search(rf"`{field}\b", PAGE), field
