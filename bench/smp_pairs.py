"""The SMP router as a reference server would be loaded: pairs of clients, one message in flight each, logs on disk.

In each pair one client sends a message of 15 kB, and the other receives and acknowledges it; then the next one is
sent. The router is a process of its own, and only its CPU counts. It answers when a change is on disk.

python -m bench.smp_pairs             16 pairs, about ten seconds
python -m bench.smp_pairs --quick     a smoke run; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.process_tree import cpu_of
from bench.results import Result, percentile, show
from tests.doubles.external_routers import external_router
from tests.doubles.smp_harness import router_credentials
from tocsin.clients import SmpClient
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.queue_modes import QueueMode, QueueRequest
from tocsin.protocol.smp.recipient_commands import CreateQueue, SecureQueue
from tocsin.protocol.smp.responses import MessageReceived
from tocsin.transport.credential_files import write_credentials

PAIRS: Final = 16
BODY_BYTES: Final = 15_000
TARGET_US: Final = 450.0
"""CPU of a message, from `SEND` to `ACK`. Bare cryptography and TLS of its five blocks take about 300 µs."""


@dataclass(slots=True)
class Pair:
    sender: SmpClient
    sender_key: X25519PrivateKey
    sender_id: bytes
    recipient: SmpClient
    recipient_key: X25519PrivateKey
    recipient_id: bytes

    async def exchange(self) -> float:
        """Send a message and acknowledge it. Returns the seconds between both answers' ends."""
        began = time.perf_counter()
        await self.sender.send_message(self.sender_id, bytes(BODY_BYTES), notify=False, key=self.sender_key)
        event = await anext(self.recipient.events())
        assert isinstance(event.response, MessageReceived)
        await self.recipient.acknowledge(self.recipient_id, event.response.message_id, self.recipient_key)
        return time.perf_counter() - began


async def opened_pair(stack: AsyncExitStack, address: RouterAddress) -> Pair:
    sender = await stack.enter_async_context(SmpClient.connect(address))
    recipient = await stack.enter_async_context(SmpClient.connect(address))
    key, sender_key = X25519PrivateKey(os.urandom(32)), X25519PrivateKey(os.urandom(32))
    dh_key = X25519PrivateKey(os.urandom(32)).public
    made = await recipient.create_queue(
        CreateQueue(key.public, dh_key, request=QueueRequest(QueueMode.MESSAGING)), key
    )
    await recipient.ask(Done, SecureQueue(sender_key.public), made.recipient_id, key)
    return Pair(sender, sender_key, made.sender_id, recipient, key, made.recipient_id)


async def measure(messages: int) -> list[Result]:
    """Each pair sends so many messages."""
    credentials = router_credentials()
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as text:
        folder = Path(text)
        write_credentials(folder, credentials)
        log, messages_log = folder / "store.log", folder / "messages.log"
        async with (
            external_router(
                "smp", folder, credentials, PORT=0, STORE_LOG=log, STORE_MSGS=messages_log
            ) as router,
            AsyncExitStack() as stack,
        ):
            address = RouterAddress(Scheme.SMP, router.location)
            pairs = [await opened_pair(stack, address) for _ in range(PAIRS)]

            async def exchange_all(pair: Pair, count: int) -> list[float]:
                return [await pair.exchange() for _ in range(count)]

            await asyncio.gather(*(exchange_all(pair, max(1, messages // 10)) for pair in pairs))
            cpu, clock = cpu_of(router.process.pid), time.perf_counter()
            took = await asyncio.gather(*(exchange_all(pair, messages) for pair in pairs))
            spent, elapsed = cpu_of(router.process.pid) - cpu, time.perf_counter() - clock
    times = [each for pair in took for each in pair]
    cost = spent / len(times) * 1e6
    name = f"SEND, MSG, ACK of 15 kB on disk, {PAIRS} pairs with one message in flight each"
    return [
        Result(f"{name}: CPU of the router", cost, "µs", cost / TARGET_US, 1.0),
        Result(f"{name}: median", percentile(times, 50) * 1e3, "ms"),
        Result(f"{name}: 99 %", percentile(times, 99) * 1e3, "ms"),
        Result(f"{name}: throughput", len(times) / elapsed, "messages/s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    options = parser.parse_args()
    show("The SMP router with its logs", asyncio.run(measure(10 if options.quick else 600)))


if __name__ == "__main__":
    main()
