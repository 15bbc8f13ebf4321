"""Handlers that do not come back by themselves."""

import asyncio
import os
import signal
import subprocess
import time


def sleep(event: object) -> None:
    time.sleep(99_999)


def asks(event: object) -> str:
    return input("name? ")


def reads_in_a_child(event: object) -> str:
    return subprocess.run(["cat"], capture_output=True, text=True, check=True).stdout or "nothing"


def busy(event: object) -> None:
    while True:
        pass


def ignores_sigterm(event: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def swallows(event: object) -> None:
    while True:
        try:
            time.sleep(1)
        except BaseException:
            continue


def with_children(event: object) -> None:
    for _ in range(3):
        subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 300 & setsid sleep 300 & wait"])
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(300)
    time.sleep(300)


async def awaits(event: object, context: object) -> str:
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        print("cancelled inside")
        raise
    return "never"


def cooperates(event: object, context) -> str:  # type: ignore[no-untyped-def]
    while not context.cancelled:
        time.sleep(0.01)
    return "gave way"


def tidies(event: object) -> None:
    try:
        time.sleep(300)
    finally:
        print("tidied up")


def pid(event: object) -> int:
    return os.getpid()
