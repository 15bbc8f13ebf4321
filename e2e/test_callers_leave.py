"""Callers that go away at any moment: the slot is free as soon as the work has ended, and never before."""

import asyncio
import json
import random
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import Api, Gateway, path_of

SOURCE = (Path(__file__).parent / "functions" / "exclusive.py").read_text()
DISCONNECTS = 1000
AT_ONCE = 8
SLOT_SECONDS = 20.0
"""A cancelled call is given a few seconds to end by itself; after this long a busy slot has leaked."""


async def leave(gateway: Gateway, tls: ssl.SSLContext, path: str, lock: str, chance: random.Random) -> None:
    """Starts a call and closes the connection at a random point of its life."""
    host, port = gateway.url.removeprefix("https://").split(":")
    body = json.dumps({"lock": lock, "seconds": chance.choice([0, 0.001, 0.02]), "padding": 200_000}).encode()
    fields = {"host": gateway.url.removeprefix("https://"), "content-length": str(len(body)), **gateway.headers()}
    head = (f"POST {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items()) + "\r\n").encode()
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls, server_hostname=host)
    stage = chance.choice(["headers", "body", "running", "answer"])
    if stage == "headers":
        writer.write(head[: chance.randrange(1, len(head))])
    elif stage == "body":
        writer.write(head + body[: chance.randrange(len(body))])
    else:
        writer.write(head + body)
    await writer.drain()
    if stage == "running":
        await asyncio.sleep(chance.random() * 0.03)
    elif stage == "answer":
        await reader.read(chance.randrange(1, 50_000))
    writer.transport.abort()


@pytest.mark.shared_files
async def test_the_slot_is_exact_after_random_disconnects(api: Api, gateway: Gateway, tmp_path: Path) -> None:
    chance = random.Random(20)
    tls = ssl.create_default_context(cafile=gateway.ca)
    with ExitStack() as functions:
        runs: list[dict[str, Any]] = [
            functions.enter_context(api.function(SOURCE, handler="exclusive.handler")) for _ in range(3)
        ]
        targets = [(path_of(run), str(tmp_path / run["metadata"]["name"])) for run in runs]
        gate = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with gate:
                path, lock = chance.choice(targets)
                await leave(gateway, tls, path, lock, chance)

        async with asyncio.TaskGroup() as group:
            for _ in range(DISCONNECTS):
                group.create_task(one())

        async with httpx.AsyncClient(base_url=gateway.url, verify=tls, trust_env=False, timeout=60) as client:
            for path, lock in targets:
                async with asyncio.timeout(SLOT_SECONDS):
                    while True:
                        answer = await client.post(path, content=json.dumps({"lock": lock}), headers=gateway.headers())
                        if answer.status_code != 429:
                            break
                        await asyncio.sleep(0.05)
                assert answer.status_code == 200, answer.text
                busy = [
                    (await client.post(path, content=json.dumps({"lock": lock}), headers=gateway.headers())).status_code
                    for _ in range(20)
                ]
                assert busy == [200] * 20
    assert not list(tmp_path.glob("*.overlap")), "two calls of one function ran at once"


@pytest.mark.shared_files
async def test_many_calls_at_once_are_served_or_told_to_wait(api: Api, gateway: Gateway, tmp_path: Path) -> None:
    tls = ssl.create_default_context(cafile=gateway.ca)
    limits = httpx.Limits(max_connections=100)
    with ExitStack() as functions:
        runs = [functions.enter_context(api.function(SOURCE, handler="exclusive.handler")) for _ in range(3)]
        async with httpx.AsyncClient(
            base_url=gateway.url, verify=tls, trust_env=False, timeout=60, limits=limits
        ) as client:

            async def call(i: int) -> httpx.Response:
                run = runs[i % len(runs)]
                body = json.dumps({"lock": str(tmp_path / run["metadata"]["name"])})
                return await client.post(path_of(run), content=body, headers=gateway.headers())

            answers = await asyncio.gather(*(call(i) for i in range(300)))
    assert {answer.status_code for answer in answers} <= {200, 429, 503}  # 503: no connection within the second it gets
    assert any(answer.status_code == 200 for answer in answers)
    refused = [answer.headers for answer in answers if answer.is_error]
    assert all(headers["x-kruntime-retry-safe"] == "true" and "retry-after" in headers for headers in refused)
    assert not list(tmp_path.glob("*.overlap"))
