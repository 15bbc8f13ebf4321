"""What there is against making a ReplicaSet of a template, and how long that is believed. Pure.

Source: design §4 (Runtime); a Pod template is the user's and is checked by the API server when something is made of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kruntimes.common.api.quantities import KUBERNETES
from kruntimes.controller.rollout import Trouble

REFUSED_SECONDS = 30.0
"""What was refused is tried again after this, and at once when the template changes. A webhook, a policy or a quota may
be mended without a change of anything that is watched; one small request in that time burdens nobody."""
_NO_QUANTITY = "quantities must match the regular expression"
NAMED_FIELDS = 3
"""So many of the wrong fields are named; who mends one of them the same way finds the rest."""


class Refused(Exception):
    """The API server makes no such ReplicaSet; `trouble` says why."""

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        super().__init__(f"{trouble.reason}: {trouble.message}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """digest: of the template that was refused. until: monotonic seconds at which it is tried again."""

    digest: str
    trouble: Trouble
    until: float


class Refusals:
    """The refusal of each Runtime's template; no more of them than there are Runtimes."""

    def __init__(self) -> None:
        self._held: dict[str, Refusal] = {}

    def of(self, key: str, digest: str, *, now: float) -> Refusal | None:
        """The refusal of that template of the Runtime *key*, None where it is to be tried (again)."""
        held = self._held.get(key)
        return held if held is not None and held.digest == digest and now < held.until else None

    def note(self, key: str, digest: str, trouble: Trouble, *, now: float) -> bool:
        """Remembers one; whether it is news."""
        held = self._held.get(key)
        self._held[key] = Refusal(digest, trouble, now + REFUSED_SECONDS)
        return held is None or (held.digest, held.trouble) != (digest, trouble)

    def forget(self, key: str) -> None:
        """Nothing is against it any more, or the Runtime is gone."""
        self._held.pop(key, None)


def explained(message: str, replica_set: Mapping[str, Any]) -> str:
    """The API server's sentence, with the fields that it means where it does not name them: wrong quantities."""
    if _NO_QUANTITY not in message:
        return message
    pod_spec = replica_set["spec"]["template"]["spec"]
    found = [path for path, value in _quantities(pod_spec, "spec.template.spec") if not _is_quantity(value)]
    return f"{message}: {', '.join(found[:NAMED_FIELDS])}" if found else message


def _is_quantity(value: Any) -> bool:
    return not isinstance(value, bool) and KUBERNETES.fullmatch(str(value)) is not None


def _quantities(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every field of a Pod's spec that holds a quantity, with its path; what has a name is told by it."""
    if isinstance(value, list):
        for i, one in enumerate(value):
            named = one.get("name", i) if isinstance(one, dict) else i
            yield from _quantities(one, f"{path}[{named}]")
    elif isinstance(value, dict):
        for key, one in value.items():
            at = f"{path}.{key}"
            if key in ("limits", "requests", "overhead") and isinstance(one, dict):
                yield from ((f"{at}.{name}", each) for name, each in one.items())
            elif key in ("sizeLimit", "divisor"):
                yield at, one
            else:
                yield from _quantities(one, at)
