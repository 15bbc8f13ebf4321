"""Counts its own calls."""

calls = 0


def handler(event, seen=[]):
    global calls
    calls += 1
    seen.append(calls)
    return {"calls": calls, "seen": len(seen)}
