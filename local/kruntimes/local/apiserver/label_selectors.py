"""`metav1.LabelSelector`, the form that selectors have inside objects. Pure."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def selected(selector: Json, obj: Json) -> bool:
    """Whether the object's labels are what *selector* asks for; an empty selector asks for nothing."""
    labels = obj["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
