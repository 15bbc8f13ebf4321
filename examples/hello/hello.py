"""The function of the first call: it greets, and counts how often this process has been called."""

calls = 0


def handler(event):
    """Takes {"name": …} and returns a greeting; module globals stay between calls."""
    global calls
    calls += 1
    return {"hello": event.get("name", "world"), "calls": calls}
