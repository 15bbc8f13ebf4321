"""Golden exchanges on the functions socket, from the called side: these bytes in, those bytes out (design §13).

`vectors/socket.json` of the functions protocol holds them, for other implementations as well: `request` and `result` in
base64, with REGISTRATION for the registration's id and 0 for how long the call took. runtimed's tests hold its side
against the same file.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.runtime_process import Client, Server
from tests.test_runtime_calls import linked

from kruntimes.functions.wire.encode import encode_result
from kruntimes.functions.wire.events import Mode, Result

VECTORS = Path(__file__).parents[2] / "functions" / "tests" / "vectors" / "socket.json"
REGISTRATION = b"REGISTRATION"
CODE = """
def answers(event, context):
    print("a line")
    context.outputs["rows"] = "3"
    return {"you sent": event, "attempt": context.attempt, "id": context.invocation_id}

def says(event):
    return "grüße\\nFUNCTION_RESULT_END\\n"

def fails(event):
    raise ValueError("bad thing")

def hangs(event):
    import time
    time.sleep(60)
"""


def cases() -> list[dict[str, Any]]:
    return json.loads(VECTORS.read_text())  # type: ignore[no-any-return]


def settled(result: Result) -> bytes:
    """*result* as a frame, without what differs from run to run: its duration, and places in files."""
    meta = re.sub(rb'"durationMs":[0-9.]+', b'"durationMs":0', result.meta)
    body = re.sub(rb'File \\"[^"]*main.py', rb'File \\"main.py', result.body)
    return encode_result(result._replace(meta=meta, body=body), Mode.LINK)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
async def test_the_runtime_server_answers_in_these_bytes(
    python_server: Server, python: Client, tmp_path: Path, case: dict[str, Any]
) -> None:
    (tmp_path / "main.py").write_text(CODE)
    registration = b"absent"
    if case["handler"]:
        function = await python.register(tmp_path, f"main.{case['handler']}", attempt=2)
        registration = function.registration.registration_id.encode()
    async with linked(python_server) as link:
        link.write(base64.b64decode(case["request"]).replace(REGISTRATION, registration))
        result = await link.result(case["transaction"])
    assert settled(result).decode("utf-8", "backslashreplace") == base64.b64decode(case["result"]).decode(
        "utf-8", "backslashreplace"
    )
