"""Never ends, in several ways, with children."""

import signal
import subprocess
import time


def handler(event):
    how = event.get("how")
    if how == "sleep":
        time.sleep(99999)
    elif how == "input":
        input()
        time.sleep(99999)
    elif how == "busy":
        while True:
            pass
    elif how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
    elif how == "child":
        subprocess.run(["sleep", event["marker"]], check=False)
    return "served"
