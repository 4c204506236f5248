"""Nothing that identifies a device, a token, a queue or a notification is logged, at any level."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.ntf_harness import ntf_router, queue_at, until
from tests.doubles.smp_harness import OK, smp_router
from tocsin.errors import StoreError
from tocsin.events.event_log import EventLog
from tocsin.events.pseudonyms import PseudonymKeys
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState
from tocsin.protocol.ntf.token_commands import DeleteToken, SetPeriodicPush, VerifyToken
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.push.provider import PushRefused, RetryLater, TokenInvalid

DEVICE_TOKEN = b"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"


def forms(secret: bytes) -> Iterator[str]:
    """In which something could appear in a text."""
    yield secret.decode("latin-1")
    yield repr(secret)[2:-1]
    yield secret.hex()
    yield secret.hex().upper()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(secret).decode().rstrip("=")


def shown(secrets: dict[str, bytes], text: str) -> list[str]:
    """Names of those that the text has in any form."""
    return [name for name, secret in secrets.items() if any(form in text for form in forms(secret))]


@pytest.mark.parametrize("form", ["raw", "hex", "base64"])
def test_the_search_can_find_something(form: str) -> None:
    secret = bytes(range(65, 90))
    text = {"raw": repr(secret), "hex": secret.hex(), "base64": base64.b64encode(secret).decode()}[form]
    assert shown({"it": secret}, f"before {text} after") == ["it"]
    assert shown({"it": secret}, "before and after") == []


class FailingStore(NtfMemoryStore):
    """Fails each kind of thing once: what is logged then must have no secret either."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[str] = set()

    def _fail_once(self, what: str) -> None:
        if what not in self.failed:
            self.failed.add(what)
            raise StoreError(f"{what} fails")

    async def add_notifications(self, *arguments: Any) -> Any:
        self._fail_once("add_notifications")
        return await super().add_notifications(*arguments)

    async def settle(self, *arguments: Any) -> None:
        self._fail_once("settle")
        await super().settle(*arguments)

    async def set_cron(self, *arguments: Any) -> bool:
        self._fail_once("set_cron")
        return await super().set_cron(*arguments)

    async def due_pushes(self, *arguments: Any) -> Any:
        self._fail_once("due_pushes")
        return await super().due_pushes(*arguments)


async def test_a_whole_delivery_logs_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("tocsin.ntf_router.store.retry.RETRY_SECONDS", 0.01)
    log = EventLog(tmp_path / "events")
    keys = PseudonymKeys(tmp_path / "keys", 30, lambda: 1_794_700_000.0)
    events = NtfEventRecorder(log, keys, "router", NtfLatencies())
    store = FailingStore()
    async with smp_router(notification_interval=0.0) as smp, ntf_router(store, events=events) as ntf:
        device = await ntf.device(DEVICE_TOKEN)
        await device.register()
        code = await device.code()
        assert await device.ask(VerifyToken(b"wrong")) != OK
        assert await device.ask(VerifyToken(code)) == OK
        recipient = await smp.connect()
        queue = await recipient.secured_queue()
        notifier = await recipient.enable_notifications(queue)
        subscription_id = await device.subscribe(queue_at(smp, notifier), notifier.key)
        async with asyncio.timeout(5):
            while await device.subscription_status(subscription_id) != SubscriptionState.ACTIVE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        sender, nonces = await smp.connect(), []
        ntf.provider.answers += [RetryLater("timeout"), PushRefused("BadTopic")]
        for number in (1, 2):
            command = SendMessage(MessageFlags(notify=True), b"hello")
            assert await sender.ask(command, queue.sender_id, queue.sender_key) == OK
            nonces += [each.nonce for each in await device.notifications()]
            await ntf.settled(number)
        assert await device.ask(SetPeriodicPush(20)) != OK
        assert await device.ask(SetPeriodicPush(20)) == OK
        for peer in list(smp.running.router.peers):
            peer.connection.connection.abort()
        [subscriber] = ntf.running.subscribers.routers.values()
        await until(lambda: not subscriber.state.connected)
        await until(lambda: subscriber.state.subscribed + subscriber.state.service_count == 1)
        sender = await smp.connect()
        stored = await ntf.store.token(device.token_id)
        assert stored is not None
        ntf.provider.answers.append(TokenInvalid(InvalidReason.BAD))
        assert await sender.ask(command, queue.sender_id, queue.sender_key) == OK
        await until(lambda: ntf.running.state.counters.tokens_invalid == 1)
        assert await device.ask(DeleteToken()) == OK
        secrets = {
            "device token": DEVICE_TOKEN,
            "device token, decoded": bytes.fromhex(DEVICE_TOKEN.decode()),
            "verify key": stored.verify_key,
            "raw verify key": device.key.public.der[-32:],
            "DH private key": stored.dh_private_key,
            "DH secret": stored.dh_secret,
            "code": code,
            "token id": device.token_id,
            "subscription id": subscription_id,
            "notifier id": notifier.notifier_id,
            "notifier key": notifier.key.der,
            "queue secret": notifier.secret,
            "recipient id": queue.recipient_id,
            "sender id": queue.sender_id,
            **{f"nonce {number}": nonce for number, nonce in enumerate(nonces)},
        }
    log.close()
    assert nonces
    assert store.failed == {"add_notifications", "settle", "set_cron", "due_pushes"}
    assert len(caplog.records) > len(store.failed)
    formatted = "\n".join(caplog.handler.format(record) for record in caplog.records)
    assert shown(secrets, formatted) == []
    written = "".join(path.read_text() for path in (tmp_path / "events").iterdir())
    assert written
    assert shown(secrets, written) == []
