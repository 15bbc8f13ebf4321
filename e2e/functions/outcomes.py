"""Ends in the way that it is asked to."""

import os
import signal
import sys
import time


def handler(event):
    match event["do"]:
        case "raise":
            raise ValueError("no good")
        case "raise-a-system-exit":
            sys.exit(0)
        case "raise-an-interrupt":
            raise KeyboardInterrupt
        case "exit-without-a-word":
            os._exit(0)
        case "kill-itself":
            os.kill(os.getpid(), signal.SIGKILL)
        case "return-an-object":
            return object()
        case "return-not-a-number":
            return float("nan")
        case "return-a-circle":
            circle = []
            circle.append(circle)
            return circle
        case "recurse":
            return handler(event)
        case "sleep":
            time.sleep(60)
        case "spin":
            while True:
                pass
        case "catch-everything":
            while True:
                try:
                    time.sleep(1)
                except BaseException:
                    continue
    return None
