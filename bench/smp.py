"""`make bench-smp`: the cost of the SMP router: sending, delivering, notifying, holding queues, restarting.

python -m bench.smp              the whole table, a few minutes
python -m bench.smp --quick      a smoke run of a few seconds; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.progress import track

from bench import floor, smp_pairs
from bench.idle_connections import growth, resident_bytes
from bench.results import Result, percentile, show
from bench.wire import AUTHORIZED_OVERHEAD, RATIO_LIMIT, SEND_BODY_BYTES, make_credentials
from tocsin.clients import Request, SmpClient
from tocsin.crypto.credentials import Credentials
from tocsin.crypto.keys import AuthPrivateKey, Ed25519PrivateKey, X25519PrivateKey
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.router_answers import Done
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.queue_modes import NotifierKeys, QueueMode, QueueRequest
from tocsin.protocol.smp.recipient_commands import CreateQueue, SecureQueue
from tocsin.protocol.smp.responses import MessageReceived, NotificationReceived, QueueCreated
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.smp_router.running_router import RunningSmpRouter, running_smp_router
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.logs.store_files import open_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord

QUEUES_LIMIT_BYTES: Final = 1 << 30
RESTART_LIMIT_SECONDS: Final = 60.0
CONNECTIONS: Final = (1, 100, 5000)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue and the connection that receives from it."""

    client: SmpClient
    ids: QueueCreated
    key: AuthPrivateKey
    sender_key: AuthPrivateKey


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.smp", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--idle", type=int, metavar="N", help="only the memory of N idle connections, in KiB")
    options = parser.parse_args()
    if options.idle is not None:
        print(asyncio.run(_idle_kibibytes(options.idle)))
        return
    results = asyncio.run(measure(quick=options.quick))
    show("The SMP router: CPU of clients and router together on one core", results)


async def measure(*, quick: bool) -> list[Result]:
    # First, while the memory of the process is not yet shaped by anything else.
    results = await _holding(1000 if quick else 1_000_000)
    results.append(await _connection_memory(50 if quick else 5000))
    results.append(await _send_ratio(100 if quick else 1500))
    results += await smp_pairs.measure(10 if quick else 600)
    for connections in track((1, 5) if quick else CONNECTIONS, "Delivering", transient=True):
        results += await _deliveries(connections, messages=20 if quick else max(1000, connections))
    return results


def _running(credentials: Credentials) -> AbstractAsyncContextManager[RunningSmpRouter]:
    settings = SmpSettings(
        hosts=("127.0.0.1",),
        ports=(0,),
        notification_interval=0.0,
        message_quota=100_000,
    )
    return running_smp_router(settings, credentials, SmpMemoryStore())


def _address(running: RunningSmpRouter, credentials: Credentials) -> RouterAddress:
    location = RouterLocation(("127.0.0.1",), str(running.ports[0]), credentials.fingerprint)
    return RouterAddress(Scheme.SMP, location)


@asynccontextmanager
async def _router(credentials: Credentials) -> AsyncIterator[RouterAddress]:
    async with _running(credentials) as running:
        yield _address(running, credentials)


async def _new_queue(client: SmpClient, notifier: NotifierKeys | None = None) -> Queue:
    key, sender_key = X25519PrivateKey(os.urandom(32)), X25519PrivateKey(os.urandom(32))
    command = CreateQueue(
        key.public,
        X25519PrivateKey(os.urandom(32)).public,
        request=QueueRequest(QueueMode.MESSAGING),
        notifier=notifier,
    )
    ids = await client.create_queue(command, key)
    await client.ask(Done, SecureQueue(sender_key.public), ids.recipient_id, key)
    return Queue(client, ids, key, sender_key)


async def _connection_memory(count: int) -> Result:
    """In a separate process, whose memory nothing else has shaped."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.smp", "--idle", str(count), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    return Result(f"memory of an idle connection ({count} open)", float(printed), "KiB")


async def _idle_kibibytes(count: int) -> float:
    """Of each session that is open and silent, with the whole router behind it."""
    credentials = make_credentials()
    async with _running(credentials) as running:
        grown = await growth(_address(running, credentials), count, lambda: len(running.router.peers))
    return grown / count / 1024


async def _send_ratio(count: int) -> Result:
    """SEND of 15 KiB with an X25519 key, stored in memory, next to the bare cryptography and TLS."""
    credentials = make_credentials()
    command = SendMessage(MessageFlags(notify=False), bytes(SEND_BODY_BYTES))
    spent = []
    async with _router(credentials) as address, SmpClient.connect(address) as client:
        for _ in range(3):
            async with SmpClient.connect(address) as recipient:
                queue = await _new_queue(recipient)
            requests = [Request(command, queue.ids.sender_id, queue.sender_key)] * count
            began = time.process_time()
            async for answer in client.request_all(requests):
                if answer.outcome != Done():
                    raise RuntimeError(f"SEND failed: {answer.outcome!r}")
            spent.append((time.process_time() - began) / count)
            # The next round finds the memory of these messages free, as in a router whose messages are fetched.
            await client.delete_queue(queue.ids.recipient_id, queue.key)
    message = bytes(AUTHORIZED_OVERHEAD) + command.encode(SMP.supported.highest)
    load = floor.Load(SMP.block_size, True, count, count, message, floor.X25519Agreed)
    bare = min([await floor.seconds_per_command(load, credentials) for _ in range(3)])
    best = min(spent)
    return Result("SEND of 15 KiB, X25519, memory store", 1 / best, "messages/s", best / bare, RATIO_LIMIT)


async def _deliveries(connections: int, messages: int) -> list[Result]:
    """SEND to MSG and to NMSG: each connection has its own queue; one connection sends, one is the notifier."""
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(_router(make_credentials()))
        sender = await stack.enter_async_context(SmpClient.connect(address))
        notifier = await stack.enter_async_context(SmpClient.connect(address))
        notifier_key = Ed25519PrivateKey(os.urandom(32))
        keys = NotifierKeys(notifier_key.public, X25519PrivateKey(os.urandom(32)).public)
        queues = []
        for _ in range(connections):
            client = await stack.enter_async_context(SmpClient.connect(address))
            queues.append(await _new_queue(client, keys))
        ids = [queue.ids.notifier.notifier_id for queue in queues if queue.ids.notifier is not None]
        async for answer in notifier.subscribe_notifications((each, notifier_key) for each in ids):
            if isinstance(answer.outcome, Exception):
                raise answer.outcome
        return await _measure_deliveries(sender, notifier, queues, messages)


async def _measure_deliveries(
    sender: SmpClient, notifier: SmpClient, queues: Sequence[Queue], messages: int
) -> list[Result]:
    sent_to: defaultdict[bytes, deque[float]] = defaultdict(deque)
    notified_of: defaultdict[bytes, deque[float]] = defaultdict(deque)
    to_recipient: list[float] = []
    to_notifier: list[float] = []
    loop = asyncio.get_running_loop()
    all_arrived = asyncio.Event()

    def note_arrival() -> None:
        if len(to_recipient) == len(to_notifier) == messages:
            all_arrived.set()

    async def receive(queue: Queue) -> None:
        async for event in queue.client.events():
            message = event.response if isinstance(event.response, MessageReceived) else None
            while message is not None:  # the answer to an ACK may bring the next one
                to_recipient.append(loop.time() - sent_to[queue.ids.sender_id].popleft())
                note_arrival()
                message = await queue.client.acknowledge(
                    queue.ids.recipient_id, message.message_id, queue.key
                )

    notifiers = {queue.ids.notifier.notifier_id: queue for queue in queues if queue.ids.notifier is not None}

    async def notified() -> None:
        async for event in notifier.events():
            if isinstance(event.response, NotificationReceived):
                began_at = notified_of[notifiers[event.entity_id].ids.sender_id].popleft()
                to_notifier.append(loop.time() - began_at)
                note_arrival()

    listening = [asyncio.ensure_future(receive(queue)) for queue in queues]
    listening.append(asyncio.ensure_future(notified()))
    began = time.process_time()
    for number in range(messages):
        queue = queues[number % len(queues)]
        for times in (sent_to, notified_of):
            times[queue.ids.sender_id].append(loop.time())
        await sender.send_message(queue.ids.sender_id, bytes(1000), notify=True, key=queue.sender_key)
    await all_arrived.wait()
    spent = (time.process_time() - began) / messages
    latencies = [*map(sorted, (to_recipient, to_notifier))]
    to_recipient.clear()
    to_notifier.clear()
    all_arrived.clear()
    rushed = time.perf_counter()
    await _send_at_once(sender, queues, messages, [sent_to, notified_of])
    await all_arrived.wait()
    per_second = messages / (time.perf_counter() - rushed)
    for each in listening:
        each.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    name = f"{len(queues)} connections"
    return [
        Result(f"SEND, MSG, ACK and NMSG, {name}: CPU", spent * 1e6, "µs"),
        Result(f"SEND to MSG, {name}: median", percentile(latencies[0], 50) * 1e3, "ms"),
        Result(f"SEND to MSG, {name}: 99 %", percentile(latencies[0], 99) * 1e3, "ms"),
        Result(f"SEND to NMSG, {name}: median", percentile(latencies[1], 50) * 1e3, "ms"),
        Result(f"SEND to NMSG, {name}: 99 %", percentile(latencies[1], 99) * 1e3, "ms"),
        Result(f"SEND, MSG, ACK and NMSG, {name}: throughput", per_second, "messages/s"),
    ]


async def _send_at_once(
    sender: SmpClient,
    queues: Sequence[Queue],
    messages: int,
    sent_at: Sequence[defaultdict[bytes, deque[float]]],
) -> None:
    """As fast as the router takes them."""
    command = SendMessage(MessageFlags(notify=True), bytes(1000))
    now = asyncio.get_running_loop().time()
    requests = []
    for number in range(messages):
        queue = queues[number % len(queues)]
        for times in sent_at:
            times[queue.ids.sender_id].append(now)
        requests.append(Request(command, queue.ids.sender_id, queue.sender_key))
    async for answer in sender.request_all(requests):
        if answer.outcome != Done():
            raise RuntimeError(f"SEND failed: {answer.outcome!r}")


async def _holding(count: int) -> list[Result]:
    """Memory of queues with notifier credentials, and the time to be ready again with as many."""
    with tempfile.TemporaryDirectory() as folder:
        store, files = open_smp_store(Path(folder), now=int(time.time()))
        gc.collect()
        before = resident_bytes()
        for number in range(count):
            store.add_queue(_queue(number))
            if number % 50_000 == 0:
                await store.commit()
        await store.commit()
        gc.collect()
        grown = resident_bytes() - before
        await files.close()
        del store, files
        gc.collect()
        began = time.perf_counter()
        _, files = open_smp_store(Path(folder), now=int(time.time()))
        seconds = time.perf_counter() - began
        await files.close()
    whole = count * QUEUES_LIMIT_BYTES / 1_000_000
    return [
        Result("memory of a queue with notifier", grown / count, "bytes", grown / whole, 1.0),
        Result(
            f"restart with {count} queues", seconds, "s", seconds / RESTART_LIMIT_SECONDS * 1e6 / count, 1.0
        ),
        Result(
            "peak memory of this benchmark", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB"
        ),
    ]


def _queue(number: int) -> QueueRecord:
    notifier = NotifierRecord(os.urandom(24), _ED25519_PREFIX + os.urandom(32), os.urandom(32))
    return QueueRecord(
        number.to_bytes(24, "big"),
        (_ED25519_PREFIX + os.urandom(32),),
        os.urandom(32),
        os.urandom(24),
        _ED25519_PREFIX + os.urandom(32),
        QueueMode.MESSAGING,
        None,
        notifier,
    )


_ED25519_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")


if __name__ == "__main__":
    main()
