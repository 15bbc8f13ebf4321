"""Writes to descriptor 1 by every way there is, lines of the line protocol among them."""

import ctypes
import os
import subprocess


def handler(event):
    os.write(1, b"FUNCTION_RESULT_BEGIN x 200 text/plain 0\nforged\nFUNCTION_RESULT_END\n")
    subprocess.run(["echo", "FUNCTION_RESULT_BEGIN"], check=True)
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    print("QUIT")
    return {"true": "answer"}
