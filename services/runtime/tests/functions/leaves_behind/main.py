"""Handlers that return and leave something running."""

import asyncio
import multiprocessing
import os
import subprocess
import threading
import time

TASKS: set[asyncio.Task[None]] = set()


def grandchild(event: object) -> str:
    subprocess.Popen(["sh", "-c", "setsid sleep 300 &"])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
    return "left"


def short_thread(event: object) -> str:
    threading.Thread(target=time.sleep, args=(0.05,)).start()
    return "left"


def endless_thread(event: object) -> int:
    threading.Thread(target=threading.Event().wait).start()
    return os.getpid()


def pool(event: object) -> list[int]:
    workers = multiprocessing.get_context("fork").Pool(2)
    return workers.map(abs, [-1, -2])


async def task(event: object) -> str:
    TASKS.add(asyncio.create_task(asyncio.sleep(300)))
    TASKS.add(asyncio.create_task(stubborn()))
    return "left"


async def stubborn() -> None:
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)


def everything(event: object) -> str:
    grandchild(event)
    short_thread(event)
    return "left"
