"""A module that starts a helper process when it is imported, and uses it in every call."""

import subprocess

HELPER = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def handler(event: object) -> str:
    assert HELPER.stdin is not None
    assert HELPER.stdout is not None
    subprocess.Popen(["sleep", "300"])
    HELPER.stdin.write(b"through the helper\n")
    HELPER.stdin.flush()
    return HELPER.stdout.readline().decode().strip()
