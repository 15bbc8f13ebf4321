"""The Python host: imports `module.function` once, keeps it warm, and runs its calls on the main thread."""

import asyncio
import importlib
import inspect
import os
import signal
import sys
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TextIO

from kruntimes.functions.wire.events import Call
from kruntimes.runtime import bounds
from kruntimes.runtime.host import report
from kruntimes.runtime.host.answer import (
    READY,
    BadInput,
    PieceCounter,
    Unencodable,
    decode_event,
    encode_answer,
    join_pieces,
)
from kruntimes.runtime.host.calls import context_of
from kruntimes.runtime.host.context import Context
from kruntimes.runtime.host.leftovers import Leftovers, ScratchFolder
from kruntimes.runtime.host.protocol import NOTHING, Config, ErrorDocument, Meta
from kruntimes.runtime.host.serve import NOT_STARTED, Answer, Stopped
from kruntimes.runtime.proc.limits import memory_of

TASKS_LEFT_SECONDS = 1.0
"""How long tasks that a coroutine left behind get to end after they were cancelled."""


class PythonHost:
    """See `kruntimes.runtime.host.serve.Host`."""

    def __init__(self) -> None:
        self._handler: Callable[..., Any] | None = None
        self._with_context = False
        self._attempt = 0
        self._runner: asyncio.Runner | None = None
        self._context: Context | None = None
        self._task: asyncio.Task[Any] | None = None
        self._leftovers: Leftovers | None = None
        self._recycle = ""
        self._scratch = ScratchFolder("")
        self._calls_left = 0
        self._most_bytes = 0

    def initialise(self, config: Config) -> Answer:
        """Imports the module and finds the handler."""
        try:
            _enter(config)
            self._handler = _load(config.handler)
            self._with_context = _takes_context(self._handler)
        except Stopped:
            raise
        except BaseException as error:
            return Answer.error(500, report.fatal(error, config.working_dir))
        self._attempt = config.attempt
        self._calls_left = config.max_calls
        self._most_bytes = config.recycle_bytes
        self._leftovers = Leftovers()
        self._scratch = ScratchFolder(config.scratch)
        return Answer(200, b"", "", Meta(warning=_threads_lost() if config.forked else ""))

    def begin(self, call: Call, report: Callable[[int, int], None]) -> None:
        """Makes the call's context, which is what a cancellation reaches."""
        self._context = context_of(call, attempt=self._attempt, report=report)

    def invoke(self, call: Call) -> Answer:
        """Decodes the event, runs the handler, encodes what it returned."""
        context = self._context
        assert context is not None, "a call that was not begun"
        if context.cancelled:
            return Answer.error(499, NOT_STARTED)
        try:
            event = decode_event(call.payload or b"", context.content_type)
            body, content_type = encode_answer(self._run(event, context), context.response_type)
            answer = Answer(200, body, content_type, _meta(context.outputs))
        except BadInput as error:
            answer = Answer.error(400, ErrorDocument(reason="BadInput", message=str(error)))
        except (Stopped, asyncio.CancelledError) as error:
            code = 499 if context.cancelled or isinstance(error, Stopped) else 500
            answer = Answer.error(code, report.describe(error))
        except Unencodable as error:
            answer = Answer.error(500, ErrorDocument(reason="FunctionError", message=str(error), type="Unencodable"))
        except BaseException as error:
            answer = Answer.error(500, report.describe(error))
        finally:
            self._context = None
        return self._with_recycle(answer)

    def ask(self) -> None:
        """Marks the context, and cancels the coroutine that runs."""
        if self._context is not None:
            self._context.request_cancellation()
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def tidy(self) -> None:
        """Cancels tasks and ends processes that the call left."""
        if self._runner is not None:
            self._end_tasks(self._runner.get_loop())
        if self._leftovers is not None and not self._recycle:
            self._leftovers.end_processes()
        self.tidy_disk()
        if self._most_bytes and (held := memory_of([os.getpid()])) > self._most_bytes:
            self._recycle = self._recycle or f"the process holds {held >> 20} MiB after its calls"

    def tidy_disk(self) -> None:
        """Removes the temporary files that the call left."""
        self._scratch.empty()

    def _run(self, event: object, context: Context) -> object:
        assert self._handler is not None, "a call came before the initialisation"
        value = self._handler(event, context) if self._with_context else self._handler(event)
        if type(value) in READY:
            return value
        if inspect.isawaitable(value) or isinstance(value, AsyncGenerator):
            if self._runner is None:
                self._runner = asyncio.Runner()
            return self._runner.run(self._await(value))
        return value

    async def _await(self, value: Awaitable[object] | AsyncGenerator[object, None]) -> object:
        self._task = asyncio.current_task()
        try:
            if self._context is not None and self._context.cancelled:
                raise asyncio.CancelledError  # it came before there was a task to cancel
            found = value if isinstance(value, AsyncGenerator) else await value
            return await _collect(found) if isinstance(found, AsyncGenerator) else found
        finally:
            self._task = None

    def _end_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        _, stubborn = loop.run_until_complete(asyncio.wait(tasks, timeout=TASKS_LEFT_SECONDS))
        if stubborn:
            self._recycle = f"{len(stubborn)} tasks were left running and did not give way"

    def _with_recycle(self, answer: Answer) -> Answer:
        if self._calls_left:
            self._calls_left -= 1
            if not self._calls_left:
                self._recycle = "the process has served as many calls as it may"
        if self._leftovers is not None:
            self._recycle = self._recycle or self._leftovers.recycle_reason()
        if self._recycle:
            answer.meta = Meta(outputs=answer.meta.outputs, recycle=self._recycle)
        return answer


def _meta(outputs: Mapping[Any, object]) -> Meta:
    """What stands beside the answer of a handler that has set *outputs*, in whose place it may have put anything."""
    return NOTHING if type(outputs) is dict and not outputs else Meta(outputs=bounds.check_outputs({**outputs}))


def _threads_lost() -> str:
    """What becomes of threads that the import started, native ones included; empty where there are none."""
    count = len(os.listdir("/proc/self/task")) - 1
    if not count:
        return ""
    return f"importing the module started threads ({count}), which the forks that run the calls do not have"


def _enter(config: Config) -> None:
    """Makes the process the function's: environment, folder, import path, standard streams."""
    os.environ.clear()
    os.environ.update(config.env)
    os.chdir(config.working_dir)
    extra = [path for path in config.env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [config.working_dir, *extra]
    sys.argv = [config.handler]
    sys.modules["__main__"] = types.ModuleType("__main__")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # They live as long as the process. Descriptor 0 is empty, so that a child program that reads it goes on; nobody
    # writes to sys.stdin, so that a handler that asks a person waits for an answer, and its deadline ends it.
    silence, _never_written = os.pipe()
    sys.stdin = open(silence, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _log_stream(1)
    sys.stderr = _log_stream(2)


def _log_stream(descriptor: int) -> TextIO:
    """Line by line, and never an error for what cannot be said in UTF-8: a print must not fail a call."""
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _load(handler: str) -> Callable[..., Any]:
    module_name, _, name = handler.rpartition(".")
    top = module_name.partition(".")[0]
    if _shadowed(top):
        # A module of that name belongs to the host; the user's own comes first, as in any Python program.
        del sys.modules[top]
    found = getattr(importlib.import_module(module_name), name, None)
    if found is None:
        raise AttributeError(f"module {module_name!r} has no {name!r}")
    if not callable(found):
        raise TypeError(f"{handler!r} is {type(found).__name__!r} and cannot be called")
    return found  # type: ignore[no-any-return]


def _shadowed(top: str) -> bool:
    loaded = sys.modules.get(top)
    if loaded is None or top == "kruntimes":
        return False
    return os.path.exists(f"{top}.py") or os.path.exists(os.path.join(top, "__init__.py"))


def _takes_context(handler: Callable[..., Any]) -> bool:
    """Whether a second positional parameter asks for the context; one with a default is the handler's own."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        return any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return positional[1].default is inspect.Parameter.empty or positional[1].name == "context"


async def _collect(generator: AsyncGenerator[object, None]) -> object:
    pieces: list[object] = []
    counter = PieceCounter()
    try:
        async for piece in generator:
            counter.add(piece)
            pieces.append(piece)
    finally:
        await generator.aclose()
    return join_pieces(pieces)
