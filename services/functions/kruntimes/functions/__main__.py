"""`python -m kruntimes.functions --module M`: serves the functions of M on standard input and output."""

import argparse
import asyncio
import importlib
import os
import sys
from collections.abc import Sequence

from kruntimes.common import logs
from kruntimes.functions.bounds import Bounds
from kruntimes.functions.plugin import NoFunctions, functions_of, serve

EX_CONFIG = 78
"""sysexits.h: the configuration is wrong, so a restart will not help."""


def main(arguments: Sequence[str]) -> int:
    """Serves; exit status 0 after an orderly end, 1 where work could not be ended, 78 for no functions."""
    parser = argparse.ArgumentParser(
        prog="python -m kruntimes.functions", description="Serves functions to an agent on standard input and output."
    )
    parser.add_argument("--module", required=True, help="the importable module that marks the functions")
    parser.add_argument("--workers", type=int, default=Bounds().workers, help="calls that run at once")
    parser.add_argument("--queue-size", type=int, default=Bounds().queue_size, help="calls that wait")
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("update_every", nargs="?", help="what agents give to every plugin; not used")
    options = parser.parse_args(arguments)
    try:
        logs.configure(options.log_level, "functions")
        bounds = Bounds(workers=options.workers, queue_size=options.queue_size)
    except ValueError as error:
        parser.error(str(error))
    input_fd, output_fd = _private_descriptors()
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        functions = functions_of(importlib.import_module(options.module))
    except (ImportError, NoFunctions) as error:
        print(f"functions: {error}", file=sys.stderr)  # noqa: T201
        return EX_CONFIG
    ended = asyncio.run(serve(functions, bounds=bounds, input_fd=input_fd, output_fd=output_fd))
    return 0 if ended else 1


def _private_descriptors() -> tuple[int, int]:
    """Moves the protocol off 0 and 1: what a function or its children read or print must not touch it."""
    input_fd, output_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return input_fd, output_fd


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
