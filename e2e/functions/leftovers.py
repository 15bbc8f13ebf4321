"""Leaves a detached grandchild that holds its output, and a thread that is not a daemon."""

import subprocess
import threading
import time


def handler(event):
    subprocess.Popen(["sh", "-c", f"sleep {event['marker']} & disown 2>/dev/null; exit 0"], start_new_session=True)
    threading.Thread(target=time.sleep, args=(30,)).start()
    return "on time"
