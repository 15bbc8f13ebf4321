"""Prints progress without newlines, then lines, as document libraries do."""

import sys


def handler(event):
    for i in range(event["fragments"]):
        sys.stdout.write(f"\r {i * 100 // event['fragments']}%")
    print("\nfinished")
    return {"fragments": event["fragments"]}
