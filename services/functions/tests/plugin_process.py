"""A plugin as a real process on real pipes, as an agent starts it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

WAIT = 60.0
MODULE = """
import asyncio, os, sys, time
from kruntimes.functions.plugin import function

@function("echo", help="Says it again.", timeout=7)
def echo(invocation):
    return invocation.answer(invocation.call.payload or b"", content_type="application/octet-stream")

@function("noise")
def noise(invocation):
    print("FUNCTION_RESULT_END")
    os.write(1, b"FUNCTION_RESULT_BEGIN x 200 a 0\\n")
    sys.stdout.flush()
    os.system("echo QUIT; cat")
    return invocation.answer(b"quiet")

@function("waits")
async def waits(invocation):
    invocation.progress(1, 2)
    await asyncio.Event().wait()

@function("brief")
async def brief(invocation):
    await asyncio.sleep(0.2)
    return invocation.answer(b"brief")

@function("ends-frame")
def ends_frame(invocation):
    return invocation.answer(b"a\\nFUNCTION_RESULT_END\\nb")

@function("stubborn")
def stubborn(invocation):
    while True:
        time.sleep(0.05)

@function("gives-up")
def gives_up(invocation):
    raise SystemExit(3)
"""


class Plugin:
    """The process. What it writes is collected as it comes, so that it is never held up by us."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "some_functions.py").write_text(MODULE)
        path = os.pathsep.join(part for part in sys.path if part)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kruntimes.functions", "--module", "some_functions", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert self.process.stdin is not None
        self.stdin = self.process.stdin
        self.output = self.errors = b""
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._read, args=(name,)) for name in ("stdout", "stderr")]
        for thread in self._threads:
            thread.start()

    def send(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def wait_for(self, text: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.output, WAIT), (self.output, self.errors[-2000:])

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, *, close: bool = True) -> int:
        """Waits for its end, and gives its exit status."""
        if close:
            self.stdin.close()
        try:
            return self.process.wait(WAIT)
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self.stdin.closed:
            self.stdin.close()
        for thread in self._threads:
            thread.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _read(self, name: str) -> None:
        pipe = getattr(self.process, name)
        while data := os.read(pipe.fileno(), 65536):
            with self._changed:
                if name == "stdout":
                    self.output += data
                else:
                    self.errors += data
                self._changed.notify_all()
