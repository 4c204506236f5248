"""CPU of the NTF router's process for a command, from connections with one command in flight each.

The router is a process of its own, with its store in memory or in a PostgreSQL whose CPU does not count. Devices have
active tokens, verified through a fake APNs.

python -m bench.ntf_commands             both stores, about a minute
python -m bench.ntf_commands --quick     a smoke run; its figures mean little
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.process_tree import cpu_of
from bench.results import Result, show
from tests.doubles.external_routers import ExternalRouter, external_router
from tests.doubles.smp_harness import router_credentials
from tocsin.clients import NtfClient
from tocsin.crypto.boxes import BoxKey, box_key
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.durable.postgres.embedded_database import embedded_database
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import VerificationPush, parse_push_json, unseal_code
from tocsin.protocol.ntf.subscription_commands import NotifierQueue, SubscribeToQueue
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.transport.credential_files import write_credentials

CONNECTIONS: Final = 16
REGISTRATIONS: Final = 80
"""A connection may make few at once. Each causes a push."""
TCHK_TARGET_US: Final = 120.0
"""With PostgreSQL."""


@dataclass
class BenchDevice:
    client: NtfClient
    key: Ed25519PrivateKey
    token_id: bytes
    subscription_id: bytes = b""

    async def check_token(self) -> None:
        await self.client.check_token(self.token_id, self.key)

    async def check_subscription(self) -> None:
        await self.client.check_subscription(self.subscription_id, self.key)

    async def subscribe(self) -> None:
        command = SubscribeToQueue(self.token_id, _queue(), Ed25519PrivateKey(os.urandom(32)))
        self.subscription_id = await self.client.subscribe_to_queue(command, self.key)

    async def register(self) -> None:
        await registered(self.client)


_SMP: Final = RouterLocation(("127.0.0.1",), "9", os.urandom(32))
"""Nobody listens there: subscriptions stay new."""


def _queue() -> NotifierQueue:
    return NotifierQueue(_SMP, os.urandom(24))


async def registered(client: NtfClient) -> tuple[bytes, Ed25519PrivateKey, BoxKey, bytes]:
    """Register a new device. Returns its token id, keys and device token."""
    key, dh_key = Ed25519PrivateKey(os.urandom(32)), X25519PrivateKey(os.urandom(32))
    device = os.urandom(32).hex().encode()
    command = RegisterToken(DeviceToken(PushProvider.APNS_TEST, device), key.public, dh_key.public)
    answer = await client.register_token(command, key)
    return answer.token_id, key, box_key(dh_key.agree(answer.dh_key)), device


async def activated(client: NtfClient, apns: FakeApns) -> BenchDevice:
    token_id, key, secret, device = await registered(client)
    push = parse_push_json((await apns.next_push(device, 30.0)).payload)
    assert isinstance(push, VerificationPush)
    await client.verify_token(token_id, unseal_code(secret, push), key)
    made = BenchDevice(client, key, token_id)
    await made.subscribe()
    return made


async def cost(
    router: ExternalRouter,
    devices: list[BenchDevice],
    work: Callable[[BenchDevice], Awaitable[None]],
    each: int,
) -> tuple[float, float]:
    """CPU of the router and time of a command, in microseconds."""

    async def one(device: BenchDevice) -> None:
        for _ in range(each):
            await work(device)

    cpu, clock = cpu_of(router.process.pid), time.perf_counter()
    await asyncio.gather(*(one(device) for device in devices))
    count = each * len(devices)
    return (cpu_of(router.process.pid) - cpu) / count * 1e6, (time.perf_counter() - clock) / count * 1e6


async def measure(name: str, database: str, each: int) -> list[Result]:
    credentials = router_credentials()
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as text:
        folder = Path(text)
        write_credentials(folder, credentials)
        async with running_fake_apns(folder / "apns") as apns:
            variables = {"APNS_PORT": apns.port, "APNS_CA": apns.ca_file, "PORT": 0}
            if database:
                variables["DB"] = database
            async with (
                external_router("ntf", folder, credentials, **variables) as router,
                AsyncExitStack() as stack,
            ):
                address = RouterAddress(Scheme.NTF, router.location)
                devices = [
                    await activated(await stack.enter_async_context(NtfClient.connect(address)), apns)
                    for _ in range(CONNECTIONS)
                ]
                results = []
                for command, work, most in (
                    ("TCHK", BenchDevice.check_token, each),
                    ("SCHK", BenchDevice.check_subscription, each),
                    ("SNEW", BenchDevice.subscribe, each),
                    ("TNEW", BenchDevice.register, REGISTRATIONS),
                ):
                    cpu, _ = await cost(router, devices, work, min(each, most))
                    limited = command == "TCHK" and database
                    results.append(
                        Result(
                            f"{command}, {name}",
                            cpu,
                            "µs",
                            cpu / TCHK_TARGET_US if limited else None,
                            1.0 if limited else None,
                        )
                    )
                return results


async def measure_all(each: int) -> list[Result]:
    results = await measure("in memory", "", each)
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder:
        async with embedded_database(Path(folder) / "postgres") as url:
            return results + await measure("PostgreSQL", url, each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    options = parser.parse_args()
    results = asyncio.run(measure_all(20 if options.quick else 1000))
    show(f"Commands of the NTF router, {CONNECTIONS} connections: CPU of its process", results)


if __name__ == "__main__":
    main()
