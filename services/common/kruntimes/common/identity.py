"""Whose certificate it is: the SPIFFE name of a workload, read strictly. Pure (design §8)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kruntimes.common.api.names import Role

_FORM = re.compile(
    r"spiffe://([a-z0-9](?:[-a-z0-9.]{0,253}[a-z0-9])?)"
    r"/ns/([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)"
    r"/(runtimed|gateway|router)"
    r"/([A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?)"
    r"/pod/([0-9a-z][0-9a-z-]{0,252})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A workload as its certificate names it; *owner* is a Runtime's or the release's name."""

    trust_domain: str
    namespace: str
    role: Role
    owner: str
    pod_uid: str


def parse(uri: str) -> Peer | None:
    """Reads a URI SAN; None where it is not one of our names."""
    match = _FORM.fullmatch(uri)
    if match is None:
        return None
    return Peer(trust_domain=match[1], namespace=match[2], role=Role(match[3]), owner=match[4], pod_uid=match[5])


def from_uris(uris: Iterable[str]) -> Peer | None:
    """The peer that a certificate's URI SANs name; None unless there is exactly one: a SPIFFE identity is single."""
    found = list(uris)
    return parse(found[0]) if len(found) == 1 else None
