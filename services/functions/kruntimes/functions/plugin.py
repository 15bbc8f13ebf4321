"""A module of functions as a plugin that an agent starts (second source document; design §7).

    from kruntimes.functions.plugin import function

    @function("hello", help="Says hello.")
    def hello(invocation):
        return invocation.answer(b'{"status": 200, "type": "text", "data": "hello"}')

    python -m kruntimes.functions --module hello

Functions are announced on standard output, calls come on standard input, answers go to standard output, logs to
standard error; whatever a function prints goes to standard error as well. QUIT, the end of the input, SIGTERM and
SIGINT end it in one way; a signal that comes while it ends cuts the drain short.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

from kruntimes.functions.bounds import Bounds
from kruntimes.functions.handlers import Threads, adapt
from kruntimes.functions.ingress import Ingress
from kruntimes.functions.manager import Manager
from kruntimes.functions.stdio import Reader, Writer
from kruntimes.functions.wire.events import Mode

log = logging.getLogger(__name__)

F = TypeVar("F")

ALIVE_SECONDS = 10.0
"""An agent gives up a plugin that says nothing for two minutes; an empty line says that it lives."""
FLUSH_SECONDS = 2.0
"""What the agent gets to take the last answers."""
_MARK = "__kruntimes_function__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """How a function is announced. timeout: seconds; access: a mask of the agent's; priority: of its list."""

    name: str
    timeout: int = 60
    help: str = ""
    tags: str = "top"
    access: int = 0
    priority: int = 100
    version: int = 0
    prefix: str | None = None

    def line(self) -> bytes:
        """The line that announces it."""
        return (
            f"FUNCTION GLOBAL {_quoted(self.name)} {self.timeout} {_quoted(self.help)} {_quoted(self.tags)} "
            f"{self.access:#x} {self.priority} {self.version}\n"
        ).encode()


def _quoted(text: str) -> str:
    """*text* as agents read it: always in quotes, with none inside, on one line."""
    return '"' + " ".join(text.replace('"', "'").replace("\\", "/").split()) + '"'


def function(
    name: str,
    *,
    timeout: int = 60,
    help: str = "",
    tags: str = "top",
    access: int = 0,
    priority: int = 100,
    version: int = 0,
    prefix: str | None = None,
) -> Callable[[F], F]:
    """Marks what runs calls of *name*: a plain function (on a thread), a coroutine function, or a Handler.

    prefix: only calls whose first argument starts with it.
    """

    def mark(handler: F) -> F:
        announcement = Announcement(
            name=name, timeout=timeout, help=help, tags=tags, access=access, priority=priority, version=version,
            prefix=prefix,
        )  # fmt: skip
        setattr(handler, _MARK, announcement)
        return handler

    return mark


class NoFunctions(Exception):
    """The module marks no function."""


def functions_of(module: ModuleType) -> list[tuple[Announcement, object]]:
    """What *module* marked, in its order. Raises NoFunctions."""
    found = {
        id(value): (announcement, value)
        for value in vars(module).values()
        if isinstance(announcement := getattr(value, _MARK, None), Announcement)
    }
    if not found:
        raise NoFunctions(f"the module {module.__name__} marks no function")
    return list(found.values())


async def serve(
    functions: Iterable[tuple[Announcement, object]],
    *,
    bounds: Bounds,
    input_fd: int,
    output_fd: int,
    on_manager: Callable[[Manager], None] = lambda _: None,
) -> bool:
    """Serves until the caller, a signal or the end of the input says so; whether everything ended in order.

    on_manager: given the manager before the first call, for whoever reads its figures.
    """
    end = asyncio.Event()
    threads = Threads(bounds.workers)
    async with asyncio.TaskGroup() as tasks:
        manager = Manager(bounds)
        on_manager(manager)
        paused = False

        def resume() -> None:
            nonlocal paused
            if writer.broken:
                end.set()
            if paused and not manager.saturated and not writer.full:
                paused = False
                reader.more()

        def arrived(data: bytes) -> None:
            nonlocal paused
            if not data:
                ingress.eof()
                return
            ingress.feed(data)
            paused = True
            resume()

        def ended() -> None:
            manager.close()  # what follows QUIT in the same read is not admitted any more
            end.set()

        manager.on_room = resume
        writer = Writer(output_fd, resume)
        ingress = Ingress(manager, Mode.STDIO, writer.write, on_end=ended)
        reader = Reader(input_fd, arrived)
        for announcement, handler in functions:
            adapted = adapt(handler, threads=threads, tasks=tasks)
            if announcement.prefix is None:
                manager.register(announcement.name, adapted, timeout=announcement.timeout)
            else:
                manager.register_prefix(
                    announcement.name, announcement.prefix, adapted, timeout=announcement.timeout
                )  # fmt: skip
            writer.write(announcement.line())
        alive = tasks.create_task(_say_alive(writer))
        async with _signals(end, manager):
            reader.start()
            await end.wait()
            orderly = await manager.stop()
        alive.cancel()
        flushed = await asyncio.to_thread(writer.close, FLUSH_SECONDS)
        threads.close()
        if not orderly:
            os._exit(1)  # a thread or task that heeds nothing would keep the process
    return orderly and flushed


async def _say_alive(writer: Writer) -> None:
    while True:
        await asyncio.sleep(ALIVE_SECONDS)
        writer.write(b"\n")


@contextlib.asynccontextmanager
async def _signals(end: asyncio.Event, manager: Manager) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def on_signal() -> None:
        if end.is_set():
            manager.cut_short()
        end.set()

    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
