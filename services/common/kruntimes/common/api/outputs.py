"""Bounded outputs, of a task in `status.outputs` and of an invocation in its envelope (design §4 and §6).

All bounds are in bytes of UTF-8. The CRD keeps all but the total, which is its writer's duty.
"""

from collections.abc import Mapping

MAX_KEYS = 64
MAX_KEY_BYTES = 128
MAX_VALUE_BYTES = 8 * 1024
MAX_TOTAL_BYTES = 64 * 1024


def violation(outputs: Mapping[str, str]) -> str | None:
    """Says in a sentence which bound *outputs* break; None where they keep all of them.

    The sentence names a key by its place, since a key may be long and is the function's own text.
    """
    if len(outputs) > MAX_KEYS:
        return f"there are {len(outputs)} outputs, and at most {MAX_KEYS} are allowed"
    total = 0
    for place, (key, value) in enumerate(outputs.items(), start=1):
        key_bytes, value_bytes = (len(text.encode("utf-8", "surrogatepass")) for text in (key, value))
        if not 0 < key_bytes <= MAX_KEY_BYTES:
            return f"the key of output {place} has {key_bytes} bytes, and 1 to {MAX_KEY_BYTES} are allowed"
        if value_bytes > MAX_VALUE_BYTES:
            return f"the value of output {place} has {value_bytes} bytes, and at most {MAX_VALUE_BYTES} are allowed"
        total += key_bytes + value_bytes
    if total > MAX_TOTAL_BYTES:
        return f"the outputs have {total} bytes, and at most {MAX_TOTAL_BYTES} are allowed"
    return None
