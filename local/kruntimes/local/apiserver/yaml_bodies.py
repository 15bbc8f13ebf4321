"""YAML bodies: what `kubectl apply --server-side` sends. A module of its own, since few starts need a YAML parser."""

from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Plain(_Loader):  # type: ignore[misc]
    """Without dates: a text that looks like one is a text."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def load(body: bytes) -> Any:
    """The one document of *body*; raises ValueError. Aliases are not taken: they make a small text a large object."""
    try:
        if b"*" in body and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(body, Loader=_Plain)):
            raise ValueError("aliases are not taken")
        return yaml.load(body, Loader=_Plain)  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)[:200]
        raise ValueError(f"yaml: line {mark.line + 1}: {what}" if mark is not None else f"yaml: {what}") from None


def dump(obj: Any) -> bytes:
    """An answer as YAML."""
    text: str = yaml.dump(obj, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text.encode()
