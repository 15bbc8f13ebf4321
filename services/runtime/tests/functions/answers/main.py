"""Every kind of answer, by name."""

import dataclasses
import datetime
import decimal
import math


@dataclasses.dataclass
class Item:
    name: str
    price: decimal.Decimal


CYCLE: list[object] = []
CYCLE.append(CYCLE)

VALUES = {
    "bytes": b"\x00\xff",
    "str": "grüße",
    "none": None,
    "large": 2**70,
    "nan": {"a": [math.nan]},
    "surrogate": {"s": "\ud800"},
    "set": {"items": [1, {2}]},
    "cycle": CYCLE,
    "decimal": decimal.Decimal("1.10"),
    "datetime": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "dataclass": Item("tea", decimal.Decimal("2.50")),
    "generator": None,
    "too large": "x" * (1024 * 1024 + 1),
    "largest": "x" * (1024 * 1024),
}


def handler(event: str) -> object:
    if event == "generator":
        return (word for word in ("a", "b"))
    return VALUES[event]


def echo(event: object, context) -> object:  # type: ignore[no-untyped-def]
    context.outputs["type"] = type(event).__name__
    return event


def html(event: object, context) -> str:  # type: ignore[no-untyped-def]
    context.response_type = "text/html"
    return "<p>"


def about(event: object, context) -> dict[str, object]:  # type: ignore[no-untyped-def]
    return {
        "id": context.invocation_id,
        "attempt": context.attempt,
        "type": context.content_type,
        "time": 0 < context.remaining() <= 60,
        "cancelled": context.cancelled,
    }


def outputs(event: dict[str, str], context) -> None:  # type: ignore[no-untyped-def]
    context.outputs.update(event)
