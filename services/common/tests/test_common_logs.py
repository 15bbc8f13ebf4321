"""One JSON object per line, whatever is logged."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kruntimes.common.logs import MAX_VALUE_CHARS, JsonFormatter


def _line(message: str = "done", *args: object, exc_info: Any = None, **extra: object) -> dict[str, Any]:
    record = logging.LogRecord("a.b", logging.INFO, "f.py", 1, message, args, exc_info)
    record.__dict__.update(extra)
    text = JsonFormatter("test").format(record)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def test_the_fields_of_a_line() -> None:
    line = _line("invoked", run_uid="u", runtime="python", invocation_id="i", attempt=2)
    assert list(line) == [
        *("time", "level", "component", "logger", "message"),
        *("run_uid", "runtime", "invocation_id", "attempt"),
    ]
    assert (line["level"], line["component"], line["logger"], line["attempt"]) == ("info", "test", "a.b", 2)
    assert line["time"].endswith("+00:00")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("a\nb\u2028c", "a\nb\u2028c", id="line-ends"),
        pytest.param("\ud800", "?", id="lone-surrogate"),
        pytest.param(Path("/x"), "/x", id="any-object"),
        pytest.param(float("nan"), None, id="nan"),
        pytest.param({1: {2}}, None, id="nested"),
        pytest.param("x" * 9999, "x" * MAX_VALUE_CHARS + "…", id="long"),
    ],
)
def test_values(value: object, expected: object) -> None:
    line = _line(field=value)
    if expected is not None:
        assert line["field"] == expected


def test_a_traceback_is_one_field() -> None:
    try:
        raise LookupError("gone")
    except LookupError as error:
        line = _line(exc_info=(type(error), error, error.__traceback__))
    assert line["traceback"].rstrip().endswith("LookupError: gone")
