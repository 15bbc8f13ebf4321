"""Coroutines, in all the ways in which people write them."""

import asyncio
from collections.abc import AsyncIterator

LOCK = asyncio.Lock()


async def gathers(event: object) -> list[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def ask(number: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%d\n" % number)
        answer = int(await reader.readline())
        writer.close()
        return answer

    async with server, LOCK:
        return await asyncio.gather(*(ask(number) for number in range(10)))


def runs_its_own(event: object) -> str:
    async def inner() -> str:
        await asyncio.sleep(0)
        return "inner"

    return asyncio.run(inner())


async def streams(event: object) -> AsyncIterator[str]:
    for word in ("a", "b", "c"):
        await asyncio.sleep(0)
        yield word


async def fails(event: object) -> None:
    await asyncio.sleep(0)
    raise ValueError("after a while")


async def exits(event: object) -> None:
    raise SystemExit(2)
