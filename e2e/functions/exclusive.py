"""Reports whether two calls ever ran at once: the lock dies with the process that holds it."""

import fcntl
import time


def handler(event):
    with open(event["lock"], "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            open(event["lock"] + ".overlap", "w").close()
        time.sleep(event.get("seconds", 0.0))
    return {"padding": "x" * event.get("padding", 0)}
