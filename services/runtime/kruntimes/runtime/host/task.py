"""A task's process: a fresh fork of the nursery that becomes the task's program. Nothing of ours stays in it."""

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from typing import NoReturn

CANNOT_EXECUTE, NOT_FOUND = 126, 127
"""Exit statuses as a shell gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """command: the program, found in the PATH of *env*, and its arguments. working_dir: absolute."""

    command: tuple[str, ...]
    working_dir: str
    env: dict[str, str]

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Program":
        """Reads what `encode` wrote."""
        document = json.loads(data)
        return cls(command=tuple(document["command"]), working_dir=document["working_dir"], env=document["env"])


def become(spec: int) -> NoReturn:
    """Becomes the program that descriptor *spec* describes; a sentence on standard error where that fails."""
    with open(spec, "rb") as file:
        program = Program.decode(file.read())
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec would hand that on
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(program.working_dir)
        os.execvpe(program.command[0], program.command, program.env)  # noqa: S606 - that is the point
    except OSError as error:
        sys.stderr.write(f"{program.command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)
