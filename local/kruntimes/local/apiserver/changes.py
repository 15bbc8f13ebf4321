"""Schemas, patches and ownership, plugged into the core. Wire."""

from kruntimes.local.apiserver.custom.definitions import KEY, Definitions, follow
from kruntimes.local.apiserver.custom.loop import clean_up
from kruntimes.local.apiserver.parts import JSON_PATCH, MERGE_PATCH, Parts
from kruntimes.local.apiserver.patches import json_patch, merge_patch


def install(parts: Parts) -> None:
    """Puts them in."""
    parts.patches |= {JSON_PATCH: json_patch, MERGE_PATCH: merge_patch}
    parts.strategies[KEY] = Definitions
    parts.attach.append(follow)
    parts.loops = [*parts.loops, clean_up]
