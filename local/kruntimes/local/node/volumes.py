"""What stands in a Pod's volumes, and how it gets and stays there (design §10).

`contents` is pure: volume and sources in, files out. `write` puts them in a folder, each file replaced at once, so
that a reader sees the old or the new. Emptied volumes are folders and nothing else.
"""

import base64
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kruntimes.common.api.views import Meta, View
from kruntimes.common.errors import NotReady
from kruntimes.local.node.environment import CannotRun, Facts, field
from kruntimes.local.node.pods import FromObject, TokenSource, Volume


class ConfigMap(View, frozen=True):
    """A ConfigMap; binaryData is base64."""

    metadata: Meta = Meta()
    data: dict[str, str] = msgspec.field(default_factory=dict)
    binary_data: dict[str, str] = msgspec.field(default_factory=dict)


class Secret(View, frozen=True):
    """A Secret; data is base64."""

    metadata: Meta = Meta()
    data: dict[str, str] = msgspec.field(default_factory=dict)

    def text(self, key: str) -> str | None:
        """The value of *key* as text, or None."""
        return base64.b64decode(self.data[key]).decode() if key in self.data else None


class NotThere(NotReady):
    """A ConfigMap, a Secret or a key in it does not exist yet; the message names it."""


def contents(
    volume: Volume,
    *,
    facts: Facts,
    config_maps: Mapping[str, ConfigMap],
    secrets: Mapping[str, Secret],
    tokens: Mapping[TokenSource, str],
) -> dict[str, bytes]:
    """Returns the files of *volume* by relative path.

    config_maps and secrets are keyed `namespace/name`; tokens by the source that asks for one. Raises NotThere
    where a source is missing and not optional, CannotRun for a kind of volume that this node does not have.
    """
    namespace = facts.pod.metadata.namespace

    def from_map(source: FromObject) -> dict[str, bytes]:
        found = config_maps.get(f"{namespace}/{source.name}")
        if found is None:
            return _absent(source, f"ConfigMap {source.name}")
        keys = {k: v.encode() for k, v in found.data.items()}
        return _pick(source, keys | _decoded(found.binary_data), f"ConfigMap {source.name}")

    def from_secret(source: FromObject) -> dict[str, bytes]:
        name = source.secret_name or source.name
        found = secrets.get(f"{namespace}/{name}")
        return (
            _absent(source, f"Secret {name}")
            if found is None
            else _pick(source, _decoded(found.data), f"Secret {name}")
        )

    if volume.empty_dir is not None:
        return {}
    if volume.config_map is not None:
        return from_map(volume.config_map)
    if volume.secret is not None:
        return from_secret(volume.secret)
    if volume.downward_api is not None:
        return {i.path: field(i.field_ref, facts).encode() for i in volume.downward_api.items if i.field_ref}
    if volume.projected is None:
        raise CannotRun(f"volume {volume.name}: krt dev has emptyDir, configMap, secret, downwardAPI and projected")
    files: dict[str, bytes] = {}
    for part in volume.projected.sources:
        if part.service_account_token is not None:
            if part.service_account_token not in tokens:
                raise NotThere(f"volume {volume.name}: there is no token yet")
            files[part.service_account_token.path] = tokens[part.service_account_token].encode()
        elif part.config_map is not None:
            files |= from_map(part.config_map)
        elif part.secret is not None:
            files |= from_secret(part.secret)
        elif part.downward_api is not None:
            files |= {i.path: field(i.field_ref, facts).encode() for i in part.downward_api.items if i.field_ref}
        else:
            raise CannotRun(f"volume {volume.name}: a projected source of this kind is not known")
    return files


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Makes *folder* hold *files*, touching only what differs; what is no longer wanted goes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_file() and path.read_bytes() == data:
            continue
        fresh = path.with_name(f".{path.name}.new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        fresh.replace(path)
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()


def _absent(source: FromObject, what: str) -> dict[str, bytes]:
    if source.optional:
        return {}
    raise NotThere(f"{what} does not exist")


def _pick(source: FromObject, keys: Mapping[str, bytes], what: str) -> dict[str, bytes]:
    if not source.items:
        return dict(keys)
    picked: dict[str, bytes] = {}
    for item in source.items:
        if item.key in keys:
            picked[item.path] = keys[item.key]
        elif not source.optional:
            raise NotThere(f"{what} has no key {item.key}")
    return picked


def _decoded(data: Mapping[str, str]) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in data.items()}
