"""Test vectors of direct notifications, for other implementations: `python -m tools.direct_vectors` writes them.

Every key is fixed, so the file is the same each time; a test compares it with what the code makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.crypto.web_push import VapidKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.dialects import DIRECT_NTF, DIRECT_SMP
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.ntf_messages import (
    ForwardPacket,
    PacketHandled,
    TokenCheckedWithKey,
    TokenRegisteredWithKey,
)
from tocsin.protocol.direct.packets import PacketFate, PacketKind, Statement, seal_packet
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    CreateNotifyingQueue,
    DeleteQueueProven,
    DisableNotificationsProven,
    NtfSubscription,
    RegisterNtfRouter,
    SendPacketAgain,
    SetMinimumPriority,
    SubscribeNotificationsAs,
    SubscribeNtfRouter,
)
from tocsin.protocol.direct.smp_responses import (
    NotificationsAcknowledged,
    NtfRouterRegistered,
    NtfRouterSubscribed,
    PacketStatus,
    QueueAssociated,
)
from tocsin.protocol.direct.vapid_keys import AskVapidKey, SignedVapidKey
from tocsin.protocol.messages import Message
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.delivered_messages import DeliveredMessage, NotificationMeta
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications
from tocsin.protocol.smp.queue_modes import QueueMode, QueueRequest, SubscriptionMode
from tocsin.protocol.smp.sender_commands import MessageFlags
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

FILE: Final = Path(__file__).resolve().parents[1] / "docs" / "direct-notifications-vectors.json"

_SMP: Final = RouterLocation(("smp.example.com",), "", bytes(range(32)))
_NTF: Final = RouterLocation(("ntf.example.com",), "", bytes(range(32, 64)))
_LONGEST: Final = RouterLocation(("a" * 113 + ".com", "b" * 111 + ".onion"), "5223", _SMP.key_hash)
"""An SMP router whose address just fits into a packet."""
_TOKEN_KEY: Final = Ed25519PrivateKey(b"\x01" * 32)
_NTF_KEY: Final = X25519PrivateKey(b"\x02" * 32)
_EPHEMERAL: Final = X25519PrivateKey(b"\x03" * 32)
_AUTH_KEY: Final = Ed25519PrivateKey(b"\x04" * 32)
_LEAF_KEY: Final = Ed25519PrivateKey(b"\x05" * 32)
_VAPID_KEY: Final = VapidKey.from_scalar(b"\x11" * 32)
_TOKEN_ID: Final = b"\x06" * 24
_ROUTER_ID: Final = b"\x07" * 24
_CORR_ID: Final = b"\x08" * 24
_ISSUED_AT: Final = 1_800_000_000
_EXPIRES_AT: Final = 1_802_592_000


def vectors() -> dict[str, Any]:
    """All of them, bytes as hexadecimal text."""
    ids, offer = ids_for(_CORR_ID), NtfKeyOffer(_NTF_KEY.public, _EXPIRES_AT)
    queue = NotifierQueue(_SMP, ids.notifier_id)
    packets = {kind: _packet(Statement(kind, _TOKEN_ID, queue), offer) for kind in PacketKind}
    longest = Statement(PacketKind.ASSOCIATE, _TOKEN_ID, NotifierQueue(_LONGEST, ids.notifier_id))
    statements = [(Statement(kind, _TOKEN_ID, queue), packet) for kind, packet in packets.items()]
    return {
        "ids": {
            "correlation_id": _CORR_ID.hex(),
            "sender_id": ids.sender_id.hex(),
            "notifier_id": ids.notifier_id.hex(),
        },
        "ntf_key": {
            "private": _NTF_KEY.raw.hex(),
            "public": _NTF_KEY.public.raw.hex(),
            "key_id": offer.key_id.hex(),
            "expires_at": _EXPIRES_AT,
        },
        "packets": [
            {
                "kind": statement.kind.value.decode(),
                "token_id": _TOKEN_ID.hex(),
                "token_private_key": _TOKEN_KEY.raw.hex(),
                "ephemeral_private_key": _EPHEMERAL.raw.hex(),
                "ntf_identity": _NTF.key_hash.hex(),
                "statement": statement.encode().hex(),
                "packet": packet.hex(),
            }
            for statement, packet in (*statements, (longest, _packet(longest, offer)))
        ],
        "registration": _registration(),
        "vapid_key": _vapid_key(),
        "smp": {"alpn": DIRECT_SMP.alpn, **_encoded(_smp_messages(queue, packets), 18)},
        "ntf": {"alpn": DIRECT_NTF.alpn, **_encoded(_ntf_messages(offer, packets), 3)},
        "flags": {str(priority): _flags(priority) for priority in range(4)},
        "delivered": [
            {
                "flags": _flags(priority),
                "plain": DeliveredMessage(_ISSUED_AT, MessageFlags.of_priority(priority), b"body")
                .encode()
                .hex(),
            }
            for priority in range(4)
        ],
        "metadata": [
            {
                "priority": priority,
                "plain": NotificationMeta(_TOKEN_ID, _ISSUED_AT, priority).encode().hex(),
            }
            for priority in range(1, 4)
        ],
        "flags_read": {
            text: _priority(text) for text in ("F", "F3", "T", "T0", "T1", "T2", "T23", "T3", "T4")
        },
        "servers": [
            {"hosts": list(each.hosts), "port": each.port, "wire": _location(each)}
            for each in (
                _SMP,
                RouterLocation(("smp.example.com", "smp.example.onion"), "5224", _SMP.key_hash),
                _LONGEST,
            )
        ],
    }


def _packet(statement: Statement, offer: NtfKeyOffer) -> bytes:
    return seal_packet(
        statement,
        ntf_identity=_NTF.key_hash,
        token_key=_TOKEN_KEY,
        offer=offer,
        ephemeral=_EPHEMERAL,
    )


def _credentials() -> NtfRouterCredentials:
    return NtfRouterCredentials.signed(
        _NTF,
        (b"leaf certificate", b"identity certificate"),
        _AUTH_KEY.public,
        _ISSUED_AT,
        smp_identity=_SMP.key_hash,
        sign=_LEAF_KEY.sign,
    )


def _registration() -> dict[str, Any]:
    return {
        "smp_identity": _SMP.key_hash.hex(),
        "leaf_private_key": _LEAF_KEY.raw.hex(),
        "auth_private_key": _AUTH_KEY.raw.hex(),
        "issued_at": _ISSUED_AT,
        "signature": _credentials().signature.hex(),
    }


def _signed_vapid_key() -> SignedVapidKey:
    return SignedVapidKey.signed(_VAPID_KEY.public, ntf_identity=_NTF.key_hash, sign=_LEAF_KEY.sign)


def _vapid_key() -> dict[str, Any]:
    signed = _signed_vapid_key()
    return {
        "ntf_identity": _NTF.key_hash.hex(),
        "leaf_private_key": _LEAF_KEY.raw.hex(),
        "public": signed.public.hex(),
        "signature": signed.signature.hex(),
    }


def _smp_messages(queue: NotifierQueue, packets: dict[PacketKind, bytes]) -> list[Message]:
    associate, end = packets[PacketKind.ASSOCIATE], packets[PacketKind.DISSOCIATE]
    subscription = NtfSubscription(_EPHEMERAL.public, _NTF, queue.notifier_id, MinimumPriority.ALL, associate)
    return [
        RegisterNtfRouter(_credentials()),
        NtfRouterRegistered(_ROUTER_ID),
        SubscribeNtfRouter(2, b"\x09" * 16),
        NtfRouterSubscribed(2, b"\x09" * 16),
        SubscribeNotificationsAs(_ROUTER_ID),
        AssociateQueue(subscription),
        AssociateQueue(subscription, end),
        QueueAssociated(_NTF_KEY.public, PacketFate.ACCEPTED),
        SendPacketAgain(associate),
        SendPacketAgain(),
        PacketStatus(PacketFate.PENDING),
        SetMinimumPriority(MinimumPriority.PRIORITY),
        DisableNotificationsProven(end),
        DeleteQueueProven(end),
        SubscribeNotificationsAs(),
        DisableNotificationsProven(),
        DeleteQueueProven(),
        AcknowledgeNotifications(3),
        NotificationsAcknowledged(3),
        CreateNotifyingQueue(
            _AUTH_KEY.public,
            _NTF_KEY.public,
            None,
            SubscriptionMode.SUBSCRIBE,
            QueueRequest(QueueMode.MESSAGING),
            None,
            subscription,
        ),
    ]


def _ntf_messages(offer: NtfKeyOffer, packets: dict[PacketKind, bytes]) -> list[Message]:
    return [
        ForwardPacket(packets[PacketKind.ASSOCIATE]),
        *(PacketHandled(fate) for fate in PacketFate),
        TokenRegisteredWithKey(_TOKEN_ID, _EPHEMERAL.public, offer),
        TokenCheckedWithKey(TokenStatus(TokenState.ACTIVE), offer),
        AskVapidKey(),
        _signed_vapid_key(),
    ]


def _encoded(messages: list[Message], version: int) -> dict[str, Any]:
    return {
        "version": version,
        "messages": [
            {"tag": message.tag.decode(), "wire": message.encode(version).hex()} for message in messages
        ],
    }


def _flags(priority: int) -> str:
    out = WireWriter()
    MessageFlags.of_priority(priority).encode(out)
    return out.done().decode()


def _priority(flags: str) -> int:
    return MessageFlags.decode(WireReader(flags.encode() + b" ")).priority


def _location(location: RouterLocation) -> str:
    out = WireWriter()
    location.encode(out)
    return out.done().hex()


def text() -> str:
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
    print(f"{FILE.name} was written")
