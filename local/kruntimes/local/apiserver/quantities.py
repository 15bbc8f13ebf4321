"""Kubernetes quantities: `1`, `500m`, `1.5Gi`, `1e3`. Pure. Exact, as decimal numbers."""

from decimal import ROUND_CEILING, Decimal

from kruntimes.common.api.quantities import KUBERNETES

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
MAX_EXPONENT = 400
"""Powers of ten that a text may name; larger ones are no quantities that anyone means."""
FINEST = Decimal("1e-9")


class BadQuantity(ValueError):
    """The text is no quantity."""


def parse_quantity(text: str) -> Decimal:
    """Its value; what is finer than a billionth is rounded up. Raises BadQuantity."""
    match = KUBERNETES.fullmatch(text)
    if match is None:
        raise BadQuantity(text)
    digits, suffix = match[1], match[2] or ""
    if len(digits) > MAX_EXPONENT:
        raise BadQuantity(text)
    value = Decimal(digits)
    if suffix in _BINARY:
        value *= 1 << _BINARY[suffix]
        value = value.quantize(Decimal(1)) if value == value.to_integral_value() else value
    elif suffix in _DECIMAL:
        value = value.scaleb(_DECIMAL[suffix])
    else:
        exponent = int(suffix[1:]) if len(suffix) < 8 else MAX_EXPONENT + 1
        if abs(exponent) > MAX_EXPONENT:
            raise BadQuantity(text)
        value = value.scaleb(exponent)
    if value == value.to_integral_value() or value.as_tuple().exponent >= -9:  # type: ignore[operator]
        return value
    sign = -1 if value < 0 else 1
    return sign * abs(value).quantize(FINEST, rounding=ROUND_CEILING)
