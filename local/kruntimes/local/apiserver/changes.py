"""Schemas, patches, ownership and their documentation, plugged into the core. Wire."""

from typing import TYPE_CHECKING

from kruntimes.local.apiserver.custom.definitions import KEY, Definitions, follow
from kruntimes.local.apiserver.custom.loop import clean_up
from kruntimes.local.apiserver.custom.strategy import CustomStrategy
from kruntimes.local.apiserver.openapi import openapi
from kruntimes.local.apiserver.ownership import places
from kruntimes.local.apiserver.ownership.apply import FieldOwnership
from kruntimes.local.apiserver.ownership.places import Place
from kruntimes.local.apiserver.parts import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Parts
from kruntimes.local.apiserver.patches import json_patch, merge_patch
from kruntimes.local.apiserver.resources import Resource
from kruntimes.local.apiserver.strategic import strategic_patch

if TYPE_CHECKING:
    from kruntimes.local.apiserver.api import Api


def install(parts: Parts) -> None:
    """Puts them in."""
    parts.patches |= {JSON_PATCH: json_patch, MERGE_PATCH: merge_patch, STRATEGIC_PATCH: strategic_patch}
    parts.strategies[KEY] = Definitions
    found = _Places()
    parts.ownership = FieldOwnership(found)
    parts.openapi = openapi
    parts.attach += [follow, found.attach]
    parts.loops = [*parts.loops, clean_up]


class _Places:
    """What the fields of a resource are, looked up in the core once it is there."""

    def __init__(self) -> None:
        self._api: Api | None = None
        self._made: dict[Resource, tuple[CustomStrategy, Place]] = {}

    def attach(self, api: "Api") -> None:
        """Called with the core."""
        self._api = api

    def __call__(self, resource: Resource) -> Place:
        """The place of a whole object."""
        strategy = self._api.strategies.of(resource) if self._api is not None else None
        if not isinstance(strategy, CustomStrategy):
            return places.built_in(resource.kind)
        held = self._made.get(resource)
        if held is None or held[0] is not strategy:
            held = self._made[resource] = (strategy, places.of_resource(strategy.schema.node))
        return held[1]
