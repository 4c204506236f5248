"""Memory of idle connections: a router here, its clients in another process.

python -m bench.idle_connections ADDRESS COUNT     the other process: connects, says so, waits for its end
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from tocsin.crypto.credentials import Credentials
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.error_codes import CommandFault
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.dialect import SMP
from tocsin.transport.block_connection import BlockConnection
from tocsin.transport.client_sessions import DialSettings, dial_smp
from tocsin.transport.listener import Listener
from tocsin.transport.router_sessions import RouterIdentity, accept_smp
from tocsin.transport.tls_contexts import server_context

DIALS_AT_ONCE = 16
DESCRIPTORS_TO_SPARE = 64


async def kibibytes_per_connection(credentials: Credentials, count: int) -> float:
    """Growth of this process for each SMP session that is open and silent. Raises RuntimeError if they fail."""
    identity = RouterIdentity.create(SMP, credentials)
    established = 0

    async def serve(connection: BlockConnection) -> None:
        nonlocal established
        served = await accept_smp(connection, identity)
        established += 1
        try:
            await served.serve(
                lambda _session, received: (
                    Pong() if isinstance(received.command, Ping) else Refused(CommandFault.PROHIBITED)
                )
            )
        finally:
            established -= 1

    context = server_context(credentials, alpn=identity.alpn, request_client_certificates=True)
    async with Listener(
        serve, context=context, block_size=SMP.block_size, hosts=["127.0.0.1"], port=0
    ) as listener:
        location = RouterLocation(("127.0.0.1",), str(listener.port), credentials.fingerprint)
        grown = await growth(RouterAddress(Scheme.SMP, location), count, lambda: established)
        await listener.close(0.0)
    return grown / count / 1024


async def growth(address: RouterAddress, count: int, established: Callable[[], int]) -> int:
    """Bytes by which this process grows when so many sessions with it are open and silent.

    `established` says how many there are now. Raises RuntimeError if the clients fail.
    """
    _allow_descriptors(count)
    # The first connections make what all of them share, and what the allocator keeps.
    warm_up = await _connect_elsewhere(address, 32, established)
    await _end(warm_up, established)
    gc.collect()
    before = resident_bytes()
    clients = await _connect_elsewhere(address, count, established)
    gc.collect()
    grown = resident_bytes() - before
    await _end(clients, established)
    return grown


async def _connect_elsewhere(
    address: RouterAddress, count: int, established: Callable[[], int]
) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.idle_connections",
        str(address),
        str(count),
        stdin=asyncio.subprocess.PIPE,
    )
    while established() < count:
        if process.returncode is not None:
            raise RuntimeError("the clients' process ended before all connections were open")
        await asyncio.sleep(0.05)
    return process


async def _end(process: asyncio.subprocess.Process, established: Callable[[], int]) -> None:
    process.terminate()
    await process.wait()
    while established():  # noqa: ASYNC110 - a benchmark may look every now and then
        await asyncio.sleep(0.05)


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _allow_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + DESCRIPTORS_TO_SPARE
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < wanted:
        raise RuntimeError(
            f"{count} connections need {wanted} open files, the limit is {hard}: use --connections"
        )


async def _hold(address: RouterAddress, count: int) -> None:
    _allow_descriptors(count)
    gate = asyncio.Semaphore(DIALS_AT_ONCE)

    async def connect() -> object:
        async with gate:
            return await dial_smp(address, DialSettings(connect_timeout=120.0))

    held = await asyncio.gather(*(connect() for _ in range(count)))
    await asyncio.Event().wait()
    del held


if __name__ == "__main__":
    asyncio.run(_hold(RouterAddress.parse(sys.argv[1]), int(sys.argv[2])))
