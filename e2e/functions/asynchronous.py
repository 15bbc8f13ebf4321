"""Awaits several things at once."""

import asyncio


async def one(i):
    await asyncio.sleep(0.01)
    return i * i


async def handler(event):
    return await asyncio.gather(*(one(i) for i in range(10)))


def plain(event):
    return asyncio.run(one(7))
