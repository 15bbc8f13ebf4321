"""Answers in every kind that Python has."""

import datetime
import decimal


def handler(event):
    kind = event["kind"]
    if kind == "circular":
        loop = {}
        loop["self"] = loop
        return loop
    return {
        "bytes": b"\x00\xff",
        "str": "text",
        "none": None,
        "big": 2**70,
        "nan": {"a": [1.0, float("nan")]},
        "surrogate": {"a": "\ud800"},
        "set": {"a": {1, 2}},
        "decimal": decimal.Decimal("1.1"),
        "datetime": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    }[kind]
