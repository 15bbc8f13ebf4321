"""Times as the API writes them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kruntimes.common.api import times

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def test_two_precisions() -> None:
    assert times.rfc3339(NOON) == "2026-03-01T12:00:00Z"
    assert times.rfc3339_micro(NOON) == "2026-03-01T12:00:00.250000Z"
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert times.rfc3339_micro(elsewhere) == "2026-03-01T12:00:00.250000Z"


@pytest.mark.parametrize(
    "text",
    ["2026-03-01T12:00:00.25Z", "2026-03-01T12:00:00.250000000Z", "2026-03-01T13:00:00.25+01:00"],
)
def test_what_other_clients_write_is_read(text: str) -> None:
    assert times.parse(text) == NOON


@pytest.mark.parametrize("text", ["", "now", "2026-03-01", "2026-03-01T12:00:00", "2026-13-01T12:00:00Z", "1772366400"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        times.parse(text)


@settings(deadline=None)
@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))
def test_what_is_written_is_read_back(moment: datetime) -> None:
    assert times.parse(times.rfc3339_micro(moment)) == moment
    assert times.parse(times.rfc3339(moment)) == moment.replace(microsecond=0)
