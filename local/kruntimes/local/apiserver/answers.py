"""Answers as HTTP: a JSON or YAML document with its warnings, and every refusal."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from kruntimes.local.apiserver.encoding import encode
from kruntimes.local.apiserver.parts import JSON, YAML
from kruntimes.local.apiserver.status import StatusError

Json = dict[str, Any]

NO_CACHE = {"Cache-Control": "no-cache, private"}


def raw(body: bytes, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer whose JSON has been made."""
    return web.Response(body=body, status=code, headers={"Content-Type": JSON, **NO_CACHE, **(headers or {})})


def document(
    obj: Json, code: int = 200, warnings: Sequence[str] = (), *, yaml: bool = False, data: bytes | None = None
) -> web.Response:
    """An answer that is *obj*. data: its JSON, where that has been made. warnings: as Warning headers."""
    if yaml:
        from kruntimes.local.apiserver import yaml_bodies

        response = raw(yaml_bodies.dump(obj), code, {"Content-Type": YAML})
    else:
        response = raw(encode(obj) if data is None else data, code)
    return _warned(response, warnings)


def refusal(error: StatusError, warnings: Sequence[str] = ()) -> web.Response:
    """A Status of failure. warnings: what was to be said before the fault was found."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else {}
    return _warned(raw(encode(error.to_json()), error.code, headers), warnings)


def _warned(response: web.Response, warnings: Sequence[str]) -> web.Response:
    for text in warnings:
        said = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{said}"')
    return response


def nothing() -> web.Response:
    """What a path gets at which nothing is served at all."""
    return web.Response(status=404, text="404 page not found\n", headers=NO_CACHE)
