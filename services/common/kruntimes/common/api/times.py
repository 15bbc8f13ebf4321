"""Times as the API writes them; reads no clock, so whatever decides may use it."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Kubernetes' metav1.Time: whole seconds, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """Kubernetes' metav1.MicroTime, which Leases use."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    """Reads an RFC 3339 time; raises ValueError for anything else, a time without a zone included."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone: {text[:40]!r}")
    return moment
