"""Writes far more to its standard output than anyone wants to keep."""

import sys


def handler(event):
    line = "x" * 1023 + "\n"
    for _ in range(event["mebibytes"] * 1024):
        sys.stdout.write(line)
    sys.stdout.write("y" * (10 * 1024 * 1024) + "\n")
    return {"intact": "é" * 1000}
