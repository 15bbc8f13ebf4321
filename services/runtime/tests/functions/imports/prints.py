"""Says much, and works."""

import sys

print("FUNCTION_RESULT_BEGIN")
print("to stderr", file=sys.stderr)
NOT_CALLABLE = 7


def handler(event: object) -> str:
    return "ready"
