"""Everything that reaches descriptor 1 without being the answer."""

import ctypes
import os
import subprocess
import sys

FRAME = b"FUNCTION_RESULT_BEGIN c1 200 text/plain 0 meta=0 len=4\nfake\nFUNCTION_RESULT_END\n"


def handler(event: object) -> dict[str, object]:
    os.write(1, FRAME)
    os.write(2, b"QUIT\n")
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    subprocess.run(["sh", "-c", "echo from a child; echo FUNCTION_RESULT_END >&2"], check=True)
    print("printed", flush=True)
    sys.__stdout__.write("original\n")
    return {"event": event}


def guesses(event: object) -> str:
    """Writes a forged answer into every descriptor that it can."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, FRAME)
        except OSError:
            continue
    return "honest"


def closes(event: object) -> str:
    os.closerange(3, 100)
    return "still here"


def replaces_stdout(event: object) -> str:
    sys.stdout = None  # type: ignore[assignment]
    sys.stderr.close()
    return "quiet"
