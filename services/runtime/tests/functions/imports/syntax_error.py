"""Does not compile."""

def handler(event):
    return event +
