"""A whole delivery through `tocsin ntf start`: SMP router, NTF router, push provider, device, and the event log."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.doubles.ntf_harness import Device, queue_at
from tests.doubles.ntf_process import NtfFolders, NtfProcess
from tests.doubles.smp_harness import OK, PATIENCE, Queue, SmpHarness, smp_router
from tocsin.events.delivery_events import Stage, decode_event
from tocsin.events.event_log import OPEN_PREFIX, PUBLISHED
from tocsin.protocol.ntf.pushes import Push, parse_push_json
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.push.fake.request_checks import Rules
from tocsin.push.fake.server import FakeApns, running_fake_apns

DEVICE_TOKEN = b"abcd1234"


class PushesOf:
    """What a device needs of a provider double, over the fake service."""

    def __init__(self, apns: FakeApns) -> None:
        self._apns = apns

    async def next_push(self, device_token: bytes) -> Push:
        return parse_push_json((await self._apns.next_push(device_token)).payload)


@pytest.fixture
def key_file(tmp_path: Path) -> tuple[Path, ec.EllipticCurvePublicKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "key.p8"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path, key.public_key()


async def subscribed_queue(smp: SmpHarness, device: Device) -> Queue:
    recipient = await smp.connect()
    queue = await recipient.secured_queue()
    notifier = await recipient.enable_notifications(queue)
    await device.subscribe(queue_at(smp, notifier), notifier.key)
    return queue


async def send(smp: SmpHarness, queue: Queue) -> None:
    sender = await smp.connect()
    command = SendMessage(MessageFlags(notify=True), b"hello")
    assert await sender.ask(command, queue.sender_id, queue.sender_key) == OK


async def device_of(router: NtfProcess, apns: FakeApns) -> Device:
    provider: Any = PushesOf(apns)
    return Device(await router.connect(), provider, DEVICE_TOKEN)


async def metrics_with(router: NtfProcess, line: str) -> str:
    """Waits for it."""
    async with asyncio.timeout(PATIENCE):
        while line not in (metrics := (await router.get("/metrics"))[1]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return metrics


def stages(folder: Path, pattern: str = PUBLISHED) -> Counter[str]:
    """Of whole lines."""
    text = b"".join(path.read_bytes() for path in folder.glob(pattern))
    return Counter(decode_event(line).stage for line in text.split(b"\n")[:-1])


async def accepted_in_open_segment(folder: Path) -> None:
    """Waits: that a push was tried is written only together with what became of it."""
    async with asyncio.timeout(PATIENCE):
        while not stages(folder, f"{OPEN_PREFIX}*")[Stage.ACCEPTED]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_messages_reach_the_device_before_and_after_a_kill_and_every_stage_is_written_down(
    tmp_path: Path, key_file: tuple[Path, ec.EllipticCurvePublicKey]
) -> None:
    folders, events = NtfFolders(tmp_path), tmp_path / "events"
    path, public_key = key_file
    async with (
        smp_router(notification_interval=0.0) as smp,
        running_fake_apns(tmp_path / "apns", rules=Rules(public_key=public_key)) as apns,
    ):
        settings = {
            "apns_test_host": "localhost",
            "apns_test_port": apns.port,
            "apns_test_ca_file": apns.ca_file,
            "apns_key_file": path,
            "apns_key_id": "ABC",
            "apns_prod_host": "off",
            "apns_dev_host": "off",
            "allow_private_hosts": "on",
            "smp_reconnect_initial": "0.05",
            "event_log": events,
            "event_log_segment_seconds": "600",
        }
        router = await folders.start(**settings)
        try:
            device = await (await device_of(router, apns)).activate()
            queue = await subscribed_queue(smp, device)
            await send(smp, queue)
            assert len(await device.notifications()) == 1
            await accepted_in_open_segment(events)
            device.client.connection.abort()
        finally:
            await router.kill()
        assert stages(events) == {}
        assert len(list(events.glob(f"{OPEN_PREFIX}*"))) == 1
        again = await folders.start(**settings)
        try:
            assert stages(events)[Stage.RECEIVED] == 1  # what the killed process had written
            await send(smp, queue)
            assert len(await device.notifications()) >= 1
            metrics = await metrics_with(again, "simplex_ntf_accounting_received 2\n")
            assert "simplex_ntf_accounting_difference 0\n" in metrics
        finally:
            assert await again.stop() == 0, "".join(again.output)
    found = stages(events)
    assert found[Stage.RECEIVED] == 2
    assert found[Stage.ATTEMPTED] >= 2
    assert list(events.glob(f"{OPEN_PREFIX}*")) == []
    output = "".join([*router.output, *again.output])
    assert DEVICE_TOKEN.decode() not in output
