"""Logical resources: whole numbers in the notation of Kubernetes' quantities (design §4).

`spec.resources.requests` and `spec.capacity.resources` count things, so only whole numbers of zero or
more are quantities here; the CRDs refuse the rest. Kubernetes clients write them as numbers or strings.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

RUNS = "runs"
"""The one resource that every Run takes and every Runtime Pod offers."""

DEFAULT_REQUEST = 1
DEFAULT_CAPACITY = 2

KUBERNETES = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
"""Kubernetes' own quantities, of memory and the like: a decimal number, and a suffix or an exponent."""
_FORM = re.compile(r"([0-9]{1,9})([kMG]|[KMG]i)?", re.ASCII)
"""Nine digits and at most a Gi stay below 2^63, so that no sum of 16 such numbers is a surprise to anyone."""
_FACTORS = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}


def parse(value: str | int) -> int:
    """Returns the number that *value* means; raises ValueError for anything that the CRDs would refuse."""
    match = _FORM.fullmatch(str(value)) if not isinstance(value, bool) else None
    if match is None:
        raise ValueError(f"not a whole quantity: {str(value)[:40]!r}")
    return int(match[1]) * _FACTORS[match[2] or ""]


def requests(raw: Mapping[str, str | int]) -> Mapping[str, int]:
    """What a Run takes of its Pod: *raw* as numbers, with one of `runs` unless it says otherwise."""
    return _parsed(raw, DEFAULT_REQUEST)


def capacity(raw: Mapping[str, str | int]) -> Mapping[str, int]:
    """What a Pod of a Runtime offers: *raw* as numbers, with two of `runs` unless it says otherwise."""
    return _parsed(raw, DEFAULT_CAPACITY)


def _parsed(raw: Mapping[str, str | int], runs: int) -> Mapping[str, int]:
    return MappingProxyType({RUNS: runs} | {name: parse(value) for name, value in raw.items()})
