"""Opens both encryption layers of a push with a simulated phone's secrets, for the page to show."""

from __future__ import annotations

from typing import Any

from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import NotifiedQueue
from tocsin.crypto.boxes import box_key
from tocsin.errors import CryptoError, RemoteProtocolError
from tocsin.protocol.agent.push_contents import open_notifications
from tocsin.protocol.ntf.pushes import MessagePush, PushedNotification, parse_push_json
from tocsin.protocol.smp.delivered_messages import NotificationMeta, unseal_meta
from tocsin.wire.base64url import encode_base64url


def is_message_push(payload: bytes) -> bool:
    try:
        return isinstance(parse_push_json(payload), MessagePush)
    except RemoteProtocolError:
        return False


async def opened_layers(store: AgentStore, payload: bytes) -> tuple[list[dict[str, Any]], dict[bytes, int]]:
    """The items that this phone can open, and the position of each message's item."""
    items: list[dict[str, Any]] = []
    positions: dict[bytes, int] = {}
    token = await store.token()
    try:
        push = parse_push_json(payload)
        if token is None or token.secret is None or not isinstance(push, MessagePush):
            return items, positions
        found = open_notifications(box_key(token.secret), push)
    except (CryptoError, RemoteProtocolError):
        return items, positions
    notifications = [each for each in found if isinstance(each, PushedNotification)]
    queues = await store.notified_queues([each.queue for each in notifications])
    for position, (item, queue) in enumerate(zip(notifications, queues, strict=True)):
        shown = _layer_one(item)
        if queue is not None and (meta := _layer_two(queue, item)) is not None:
            shown["connection"] = queue.connection_id
            shown["meta"] = {
                "messageId": encode_base64url(meta.message_id),
                "sentAt": meta.sent_at,
                "mention": meta.is_mention,
            }
            positions[meta.message_id] = position
        items.append(shown)
    return items, positions


def _layer_one(item: PushedNotification) -> dict[str, Any]:
    router = item.queue.router
    return {
        "router": f"{router.hosts[0]}:{router.port}" if router.port else router.hosts[0],
        "notifierId": encode_base64url(item.queue.notifier_id),
        "receivedAt": item.received_at,
        "nonce": encode_base64url(item.nonce),
        "sealedMeta": encode_base64url(item.sealed_meta),
        "meta": None,
    }


def _layer_two(queue: NotifiedQueue, item: PushedNotification) -> NotificationMeta | None:
    try:
        return unseal_meta(box_key(queue.secret), item.nonce, item.sealed_meta)
    except (CryptoError, RemoteProtocolError):
        return None
