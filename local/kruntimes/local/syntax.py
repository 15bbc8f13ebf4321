"""Whether a source could be loaded at all: asked before anything is declared, and answered with file and line."""

import ast
import re
import shutil
import subprocess
import warnings
from pathlib import Path

BASH_SECONDS = 5.0
"""`bash -n` reads 256 KiB in a few milliseconds."""
_BASH = re.compile(r"^\S*: line (\d+): (.*)", re.MULTILINE)


def trouble(file: str, text: str) -> str | None:
    """What is wrong with *text* as a Python or Bash file, in one line that begins with *file*; None where nothing is.

    Nothing in it is executed.
    """
    if Path(file).suffix == ".py":
        return _python(file, text)
    return _bash(file, text) if Path(file).suffix == ".sh" else None


def _python(file: str, text: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text.encode(), file)  # bytes, as of a file: with a byte order mark, or a line of its encoding
    except SyntaxError as error:
        return f"{file}, line {error.lineno or 1}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{file}: not Python: {error}"
    return None


def _bash(file: str, text: str) -> str | None:
    if text.startswith("\ufeff"):
        return f"{file}, line 1: a byte order mark, which Bash takes for a part of the first word"
    bash = shutil.which("bash")
    if bash is None:
        return None
    # No environment: BASH_ENV would name a file to execute.
    try:
        done = subprocess.run(
            [bash, "--norc", "-n", "-s"], input=text.encode(), env={"LC_ALL": "C"}, capture_output=True,
            timeout=BASH_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace")
    found = _BASH.search(said)
    return f"{file}, line {found[1]}: {found[2]}" if found else f"{file}: not Bash: {said.strip()[:200]}"
