"""Giving an order to a router that runs on this machine, through its control port."""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.errors import StoreError
from tocsin.operate.control_port import HOST

SECONDS: Final = 60.0
GREETING_LINES: Final = 2


async def order_of_operator(port: int, password: str, order: str) -> str | None:
    """The router's answer; None if no router listens. Raises StoreError if it refuses."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return None
    try:
        async with asyncio.timeout(SECONDS):
            for _ in range(GREETING_LINES):
                await reader.readline()
            writer.write(f"auth {password}\n{order}\nquit\n".encode())
            await reader.readline()
            answer = (await reader.readline()).decode().strip()
    except (OSError, TimeoutError) as error:
        raise StoreError(f"the router's control port does not answer: {type(error).__name__}") from error
    finally:
        writer.close()
    if not answer.startswith("ok"):
        raise StoreError(f"the router refused {order}: {answer or 'no answer'}")
    return answer
