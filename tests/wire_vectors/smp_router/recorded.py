"""What the recorded SMP exchanges tell, and how one is replayed on a stage.

Recorded requests are sent as they are, byte for byte; ids, keys, nonces, message ids and the time of the recording
are given to the router. Its blocks must be the recorded ones, byte for byte. Where an input was not recorded, what
depends on it is compared by structure, and the test says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tests.wire_vectors.smp_router.stage import VECTORS, Actor, Stage, stage
from tocsin.crypto.keys import AuthPrivateKey, Ed25519PrivateKey
from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.sessions import ReceivedResponse
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord, StoredMessage
from tocsin.wire.batches import split_batch
from tools.wire_vectors.files import Fields
from tools.wire_vectors.recorded_sessions import private_key, public_key

OURS: Final = Ed25519PrivateKey(b"\x07" * 32)
"""Also manages the queues of the stage: for commands that were not recorded."""
SMP_VECTORS: Final = {name for name, vector in VECTORS.items() if vector.protocol == "smp"}
SPAM: Final = Blocked(BlockReason.SPAM, BlockNotice(86_400))
REPLAYED: Final[list[str]] = []
"""Vectors that some test of this folder replays."""

Scenario = Callable[[Stage], Awaitable[None]]


def replays(*names: str, **settings: Any) -> Callable[[Scenario], Callable[..., Awaitable[None]]]:
    """The function is a test that reproduces these vectors, on a router with these settings."""
    REPLAYED.extend(names)

    def make_test(scenario: Scenario) -> Callable[..., Awaitable[None]]:
        async def test(monkeypatch: pytest.MonkeyPatch) -> None:
            async with stage(monkeypatch, **settings) as on:
                await scenario(on)

        test.__name__ = test.__qualname__ = scenario.__name__
        test.__doc__ = scenario.__doc__
        return test

    return make_test


def part(name: str, *path: str) -> Fields:
    fields = VECTORS[name].fields
    for step in path:
        fields = fields.object(step)
    return fields


def content(name: str, side: str) -> bytes:
    return part(name, side).octets("content")


def entity(name: str, side: str = "request") -> bytes:
    return part(name, side).octets("entity")


def key_der(name: str) -> bytes:
    return public_key(part(name, "request", "auth", "key")).der


def signer(name: str) -> AuthPrivateKey:
    key = private_key(part(name, "request", "auth", "key"))
    assert key is not None
    return key


def queue(
    recipient_id: bytes = b"r" * 24,
    sender_id: bytes = b"s" * 24,
    *,
    keys: tuple[bytes, ...] = (),
    secret: bytes = bytes(32),
    **more: Any,
) -> QueueRecord:
    return QueueRecord(recipient_id, (*keys, OURS.public.der), secret, sender_id, **more)


def notifier(name: str, secret: bytes = bytes(32), service_id: bytes | None = None) -> NotifierRecord:
    """The notifier of a recorded NSUB."""
    return NotifierRecord(entity(name), key_der(name), secret, service_id)


def message(message_id: bytes, sent_at: int, body: bytes, *, notify: bool = True) -> StoredMessage:
    return StoredMessage(message_id, sent_at, int(notify), body)


def recorded_message(name: str) -> StoredMessage:
    """The message that a vector shows in decrypted form."""
    decrypted = part(name, "decrypted")
    recorded = decrypted.object("message")
    notify = recorded.text("flags") == "T"
    return message(decrypted.octets("nonce"), recorded.integer("ts"), recorded.octets("body"), notify=notify)


def send(body: bytes, *, notify: bool = True) -> SendMessage:
    return SendMessage(MessageFlags(notify), body)


async def answered(actor: Actor, name: str) -> None:
    """A recorded request gets the recorded answer."""
    assert await actor.replay(content(name, "request")) == content(name, "response")


def received_in(actor: Actor, block: bytes) -> list[ReceivedResponse]:
    return actor.client.read_block(actor.client.to_block(split_batch(block)))


async def send_notified(on: Stage, decrypted: Fields, sender_id: bytes = b"s" * 24) -> None:
    on.clock.time = decrypted.integer("msg_ts")
    on.randomness.ids.extend((decrypted.octets("msg_id"), decrypted.octets("nonce")))
    assert (await on.stranger().ask(send(b"hello"), sender_id, None)).endswith(b"OK")


def new_ids(on: Stage, name: str) -> None:
    """Ids and keys of the answer, in the order in which our router asks for them."""
    ids = part(name, "response", "command")
    recorded_notifier = ids.object("ntf") if ids.has("ntf") else None
    own_sender_id = not ids.has("link_id")
    keys = [ids.octets("srv_dh")]
    if recorded_notifier is not None:
        keys.append(recorded_notifier.octets("srv_dh"))
        on.randomness.ids.append(recorded_notifier.octets("notifier_id"))
    on.randomness.ids.append(ids.octets("rcv_id"))
    on.randomness.ids.append(ids.octets("snd_id" if own_sender_id else "link_id"))
    on.randomness.will_give_keys(*keys)
