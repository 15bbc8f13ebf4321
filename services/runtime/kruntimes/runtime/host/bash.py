"""The Bash host: `file.function`, sourced once in a warm shell, each call in a subshell of its own.

The payload is one quoted argument, standard output is the answer, standard error the log, the exit status
decides. Input is never evaluated as shell: it travels in a file that the shell reads into a variable.
"""

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from kruntimes.functions.wire.events import Call
from kruntimes.runtime import bounds
from kruntimes.runtime.host import answer
from kruntimes.runtime.host.calls import context_of
from kruntimes.runtime.host.context import Context
from kruntimes.runtime.host.ends import how_it_ended, signal_name
from kruntimes.runtime.host.leftovers import Leftovers, ScratchFolder
from kruntimes.runtime.host.protocol import Config, ErrorDocument, Meta
from kruntimes.runtime.host.serve import NOT_STARTED, Answer
from kruntimes.runtime.proc import tree

SCRIPT = Path(__file__).with_name("shell.sh")
PIPE_BYTES = 64 * 1024
"""What a pipe holds: when the status arrives, the rest of the output lies in it and nowhere else."""
ASK_AGAIN_MILLIS = 100
"""Between two looks at whether a silent call was cancelled."""
SYNTAX_CHECK_SECONDS = 20.0
_SHELL = "bash"


class ShellError(Exception):
    """The function's file or the shell is not usable."""


class BashHost:
    """See `kruntimes.runtime.host.serve.Host`."""

    def __init__(self) -> None:
        self._attempt = 0
        self._context: Context | None = None
        self._shell: subprocess.Popen[bytes] | None = None
        self._leftovers: Leftovers | None = None
        self._calls, self._stdout, self._status = -1, -1, -1
        self._input, self._outputs = -1, -1
        self._scratch = ScratchFolder("")

    def initialise(self, config: Config) -> Answer:
        """Checks the file's syntax, then sources it in the shell that stays."""
        self._attempt = config.attempt
        try:
            os.environ.clear()
            os.environ.update(config.env)
            os.chdir(config.working_dir)
            file, _, function = config.handler.rpartition(".")
            self._start(_script_of(file, Path(config.working_dir)), function)
        except (ShellError, OSError, subprocess.SubprocessError) as error:
            message = bounds.head(str(error), bounds.MAX_MESSAGE_BYTES)
            return Answer.error(500, ErrorDocument(reason="InitialisationFailed", message=message, type="ShellError"))
        self._leftovers = Leftovers()
        self._scratch = ScratchFolder(config.scratch)
        return Answer(200, b"", "")

    def begin(self, call: Call, report: Callable[[int, int], None]) -> None:
        """Makes the call's context, which is what a cancellation reaches."""
        self._context = context_of(call, attempt=self._attempt, report=report)

    def invoke(self, call: Call) -> Answer:
        """Runs the function in a subshell and reads its output until its status arrives."""
        context = self._context
        assert context is not None, "a call that was not begun"
        if context.cancelled:
            return Answer.error(499, NOT_STARTED)
        payload = call.payload or b""
        if b"\0" in payload:
            return Answer.error(
                400, ErrorDocument(reason="BadInput", message="the body holds a NUL byte, which a shell cannot take")
            )
        try:
            _fill(self._input, payload)
            _fill(self._outputs, b"")
            head = f"{context.invocation_id or '-'} {int(context.remaining() * 1000)} {context.content_type}\n"
            os.write(self._calls, head.encode())
            status, body = self._collect(context)
            return self._answer(status, body, context)
        except BrokenPipeError:
            return self._shell_ended()
        finally:
            self._context = None

    def ask(self) -> None:
        """Sends SIGTERM to what the call runs."""
        if self._context is not None and self._shell is not None:
            self._context.request_cancellation()
            tree.signal_all(tree.descendants(self._shell.pid), signal.SIGTERM)

    def tidy(self) -> None:
        """Ends processes that the call left, and forgets what they wrote since."""
        if self._leftovers is not None:
            self._leftovers.end_processes()
        self.tidy_disk()
        while _read(self._stdout, PIPE_BYTES):
            pass

    def tidy_disk(self) -> None:
        """Removes the temporary files that the call left."""
        self._scratch.empty()

    def _start(self, script: Path, function: str) -> None:
        check = subprocess.run(
            [_SHELL, "-n", script], capture_output=True, timeout=SYNTAX_CHECK_SECONDS, stdin=subprocess.DEVNULL
        )
        if check.returncode:
            raise ShellError(check.stderr.decode("utf-8", "replace").strip() or "the file is not valid Bash")
        calls, self._calls = os.pipe()
        self._status, status = os.pipe()
        self._stdout, stdout = os.pipe()
        self._input, self._outputs = os.memfd_create("kr-input", 0), os.memfd_create("kr-outputs", 0)
        theirs = (calls, status, stdout, self._input, self._outputs)
        self._shell = subprocess.Popen(
            [_SHELL, "--noprofile", "--norc", SCRIPT, script, function, *map(str, theirs)],
            stdin=subprocess.DEVNULL,
            pass_fds=theirs,
        )
        for descriptor in (calls, status, stdout):
            os.close(descriptor)
        os.set_blocking(self._stdout, False)
        word = os.read(self._status, 64).strip()
        if word == b"missing":
            raise ShellError(f"{script.name} defines no function {function!r}")
        if word != b"ready":
            raise ShellError(f"{script.name}: {how_it_ended(self._shell.wait())} while it was sourced")

    def _collect(self, context: Context) -> tuple[int | None, bytearray]:
        """The function's status, None where the shell itself ended, and at most one byte too much of its output."""
        body = bytearray()
        most = bounds.MAX_OUTPUT_BYTES + 1
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        poll.register(self._status, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(ASK_AGAIN_MILLIS)}
            if not ready and context.cancelled:
                self.ask()  # the first time, the subshell may not have existed yet
            # The status first: output that was written before it is in the pipe by now.
            status = os.read(self._status, 64) if self._status in ready else None
            data = _read(self._stdout, PIPE_BYTES)
            body += data[: most - len(body)]
            if status is not None:
                return (int(status) if status else None), body

    def _answer(self, status: int | None, body: bytearray, context: Context) -> Answer:
        if status is None:
            return self._shell_ended()
        if status != 0:
            return Answer.error(
                499 if context.cancelled else 500,
                ErrorDocument(
                    reason="FunctionError", message=f"the function {_how_it_returned(status)}", type="ExitStatus"
                ),
            )
        if len(body) > bounds.MAX_OUTPUT_BYTES:
            message = (
                f"standard output has more than {bounds.MAX_OUTPUT_BYTES} bytes, which is all that can be returned"
            )
            return Answer.error(500, ErrorDocument(reason="FunctionError", message=message, type="OutputTooLarge"))
        try:
            outputs = bounds.parse_outputs(_contents(self._outputs))
        except bounds.OutputsError as error:
            return Answer.error(500, ErrorDocument(reason="FunctionError", message=str(error), type="OutputsError"))
        return Answer(200, bytes(body), _type_of(body), Meta(outputs=outputs))

    def _shell_ended(self) -> Answer:
        how = how_it_ended(self._shell.wait()) if self._shell is not None else "ended"
        return Answer.error(
            500, ErrorDocument(reason="FunctionError", message=f"the shell {how}", type="ShellEnded"),
            recycle="the shell ended",
        )  # fmt: skip


def _script_of(file: str, working_dir: Path) -> Path:
    script = (working_dir / f"{file}.sh").resolve()
    if not script.is_relative_to(working_dir.resolve()):
        raise ShellError(f"{file}.sh lies outside the working directory")
    if not script.is_file():
        raise ShellError(f"there is no file {file}.sh")
    return script


def _fill(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    at = 0
    while at < len(data):
        at += os.pwrite(descriptor, data[at:], at)


def _contents(descriptor: int) -> bytes:
    """What the call appended; one byte over the bound is enough to refuse it."""
    return os.pread(descriptor, bounds.MAX_OUTPUTS_BYTES * 2, 0)


def _read(descriptor: int, most: int) -> bytes:
    try:
        return os.read(descriptor, most)
    except BlockingIOError:
        return b""


def _type_of(body: bytearray) -> str:
    """JSON for an object or array, text for other UTF-8, bytes for the rest."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return answer.BYTES
    if text.lstrip()[:1] in ("{", "["):
        try:
            json.loads(text)
            return answer.JSON
        except (ValueError, RecursionError):
            pass
    return answer.TEXT


def _how_it_returned(status: int) -> str:
    if status > 128 and (name := signal_name(status - 128)):
        return f"returned status {status} (as after {name})"
    return f"returned status {status}"
