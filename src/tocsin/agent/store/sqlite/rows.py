"""Conversion of records to rows and back. Secret values are sealed for their place in the file."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from tocsin.agent.store.records import (
    AgentSubscription,
    AgentToken,
    CheckDue,
    EndpointSecret,
    KeptMessage,
    NextAction,
    NotificationMode,
    NotifiedQueue,
    QueueNotifier,
    ReceiveQueue,
    RegistrationDue,
    SendQueue,
    SubscriptionPhase,
    TokenAction,
    TokenToDelete,
    VerificationDue,
)
from tocsin.agent.store.sqlite.vault import Vault
from tocsin.crypto.keys import dh_key_from_der
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import (
    TokenStatus,
    parse_subscription_status,
    subscription_status_text,
)
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION

Row = tuple[Any, ...]

RECEIVE_QUEUE: Final = (
    "connection_id, number, router, recipient_id, key_sealed, secret_sealed, sender_id, peer_key_sealed, "
    "sender_key, notifier_id, notifier_key_sealed, notifier_secret_sealed, notifier_minimum, last_message_at, "
    "is_primary, last_message_id"
)
NOTIFIED_QUEUE: Final = "connection_id, number, notifier_secret_sealed, last_message_at, last_message_id"
KEPT_MESSAGE: Final = (
    "number, connection_id, queue_number, message_id, sent_at, body_sealed, reason, priority"
)
SEND_QUEUE: Final = "connection_id, number, router, sender_id, key_sealed, peer_key, secured"
TOKEN: Final = ", ".join(
    (
        *("device_token_sealed", "router", "key_sealed", "dh_key_sealed", "status", "action", "code_sealed"),
        *("mode", "token_id", "secret_sealed", "ntf_key", "ntf_key_expires_at"),
    )
)
TOKEN_TO_DELETE: Final = "number, router, token_id, key_sealed, created_at"  # noqa: S105 - the names of columns
ENDPOINT_SECRET: Final = "number, device_token_sealed, secret_sealed"  # noqa: S105 - the names of columns
SUBSCRIPTION: Final = (
    "connection_id, smp_router, ntf_router, phase, action, due_at, notifier_id, subscription_id, token_id, "
    "status, version"
)


def marks(columns: str) -> str:
    """Return a question mark for each column."""
    return ", ".join("?" * len(columns.split(",")))


def assignments(columns: str) -> str:
    return ", ".join(f"{column.strip()} = ?" for column in columns.split(","))


def location_text(router: RouterLocation, scheme: Scheme) -> str:
    return router.text(scheme)


@lru_cache(1024)
def location(text: str) -> RouterLocation:
    """Parse an address, with a cache: an agent has thousands of rows but few routers."""
    return RouterAddress.parse(text).location


def notifier_place(router: RouterLocation) -> str:
    """Return hosts and port, which identify a router in notifications; the key hash is not compared (ntf.md 6.11)."""
    known = router.with_legacy_onion()
    return f"{','.join(known.hosts)}:{known.port}"


def receive_queue_row(queue: ReceiveQueue, vault: Vault) -> Row:
    place = f"receive_queues/{queue.connection_id}/{queue.number}"
    return (
        queue.connection_id,
        queue.number,
        location_text(queue.router, Scheme.SMP),
        queue.recipient_id,
        vault.seal(queue.key, f"{place}/key"),
        vault.seal(queue.secret, f"{place}/secret"),
        queue.sender_id,
        vault.seal(queue.peer_key, f"{place}/peer_key"),
        queue.sender_key,
        *notifier_row(queue.connection_id, queue.number, queue.notifier, vault),
        queue.last_message_at,
        queue.primary,
        queue.last_message_id,
    )


def notifier_row(connection_id: str, number: int, notifier: QueueNotifier | None, vault: Vault) -> Row:
    if notifier is None:
        return (None, None, None, None)
    place = f"receive_queues/{connection_id}/{number}"
    return (
        notifier.notifier_id,
        None if notifier.key is None else vault.seal(notifier.key, f"{place}/notifier_key"),
        vault.seal(notifier.secret, f"{place}/notifier_secret"),
        notifier.minimum,
    )


def read_receive_queue(row: Row, vault: Vault) -> ReceiveQueue:
    connection_id, number, router, recipient_id, key, secret, sender_id, peer_key, sender_key, *rest = row
    notifier_id, notifier_key, notifier_secret, minimum, last_message_at, is_primary, last_message_id = rest
    place = f"receive_queues/{connection_id}/{number}"
    notifier = None
    if notifier_id is not None:
        notifier = QueueNotifier(
            notifier_id,
            None if notifier_key is None else vault.unseal(notifier_key, f"{place}/notifier_key"),
            vault.unseal(notifier_secret, f"{place}/notifier_secret"),
            MinimumPriority(minimum),
        )
    return ReceiveQueue(
        connection_id,
        number,
        location(router),
        recipient_id,
        vault.unseal(key, f"{place}/key"),
        vault.unseal(secret, f"{place}/secret"),
        sender_id,
        vault.unseal(peer_key, f"{place}/peer_key"),
        sender_key,
        notifier,
        last_message_at,
        bool(is_primary),
        last_message_id,
    )


def read_notified_queue(row: Row, vault: Vault) -> NotifiedQueue:
    connection_id, number, secret, last_message_at, last_message_id = row
    place = f"receive_queues/{connection_id}/{number}/notifier_secret"
    return NotifiedQueue(connection_id, number, vault.unseal(secret, place), last_message_at, last_message_id)


def kept_message_row(message: KeptMessage, vault: Vault) -> Row:
    """Return the row without its number."""
    place = kept_message_place(message.connection_id, message.queue_number, message.message_id)
    return (
        message.connection_id,
        message.queue_number,
        message.message_id,
        message.sent_at,
        None if message.body is None else vault.seal(message.body, place),
        message.reason,
        message.priority,
    )


def read_kept_message(row: Row, vault: Vault) -> KeptMessage:
    number, connection_id, queue_number, message_id, sent_at, body, reason, priority = row
    place = kept_message_place(connection_id, queue_number, message_id)
    plain = None if body is None else vault.unseal(body, place)
    return KeptMessage(connection_id, queue_number, message_id, sent_at, plain, reason, priority, number)


def kept_message_place(connection_id: str, queue_number: int, message_id: bytes) -> str:
    return f"kept_messages/{connection_id}/{queue_number}/{message_id.hex()}/body"


def send_queue_row(queue: SendQueue, vault: Vault) -> Row:
    return (
        queue.connection_id,
        queue.number,
        location_text(queue.router, Scheme.SMP),
        queue.sender_id,
        vault.seal(queue.key, f"send_queues/{queue.connection_id}/{queue.number}/key"),
        queue.peer_key,
        queue.secured,
    )


def read_send_queue(row: Row, vault: Vault) -> SendQueue:
    connection_id, number, router, sender_id, key, peer_key, secured = row
    key = vault.unseal(key, f"send_queues/{connection_id}/{number}/key")
    return SendQueue(connection_id, number, location(router), sender_id, key, peer_key, bool(secured))


_ACTIONS: Final[dict[type[TokenAction], str]] = {RegistrationDue: "R", VerificationDue: "V", CheckDue: "C"}


def token_row(token: AgentToken, vault: Vault) -> Row:
    return (
        vault.seal(_device_bytes(token.device_token), "tokens/device_token"),
        location_text(token.router, Scheme.NTF),
        vault.seal(token.key, "tokens/key"),
        vault.seal(token.dh_key, "tokens/dh_key"),
        token.status.text(INVALID_REASON_VERSION),
        None if token.action is None else _ACTIONS[type(token.action)],
        vault.seal(token.action.code, "tokens/code") if isinstance(token.action, VerificationDue) else None,
        token.mode.value,
        token.token_id,
        None if token.secret is None else vault.seal(token.secret, "tokens/secret"),
        None if token.ntf_key is None else token.ntf_key.key.der,
        None if token.ntf_key is None else token.ntf_key.expires_at,
    )


def read_token(row: Row, vault: Vault) -> AgentToken:
    device, router, key, dh_key, status, action, code, mode, token_id, secret, ntf_key, expires_at = row
    actions: dict[str | None, TokenAction | None] = {None: None, "R": RegistrationDue(), "C": CheckDue()}
    return AgentToken(
        _device_token(vault.unseal(device, "tokens/device_token")),
        location(router),
        vault.unseal(key, "tokens/key"),
        vault.unseal(dh_key, "tokens/dh_key"),
        TokenStatus.parse(status),
        VerificationDue(vault.unseal(code, "tokens/code")) if action == "V" else actions[action],
        NotificationMode(mode),
        token_id,
        None if secret is None else vault.unseal(secret, "tokens/secret"),
        None if ntf_key is None else NtfKeyOffer(dh_key_from_der(ntf_key), expires_at),
    )


def token_to_delete_place(token_id: bytes) -> str:
    """Return the place of a key; the row's number is not known when the key is sealed."""
    return f"tokens_to_delete/{token_id.hex()}/key"


def read_token_to_delete(row: Row, vault: Vault) -> TokenToDelete:
    number, router, token_id, key, created_at = row
    key = vault.unseal(key, token_to_delete_place(token_id))
    return TokenToDelete(number, location(router), token_id, key, created_at)


def endpoint_secret_row(number: int, kept: EndpointSecret, vault: Vault) -> Row:
    place = f"endpoint_secrets/{number}"
    return (
        number,
        vault.seal(_device_bytes(kept.device_token), f"{place}/device_token"),
        vault.seal(kept.secret, f"{place}/secret"),
    )


def read_endpoint_secret(row: Row, vault: Vault) -> EndpointSecret:
    number, device, secret = row
    place = f"endpoint_secrets/{number}"
    return EndpointSecret(
        _device_token(vault.unseal(device, f"{place}/device_token")),
        vault.unseal(secret, f"{place}/secret"),
    )


def _device_bytes(token: DeviceToken) -> bytes:
    return token.provider.value + token.token


def _device_token(kept: bytes) -> DeviceToken:
    return DeviceToken(PushProvider(kept[:2]), kept[2:])


def subscription_row(subscription: AgentSubscription) -> Row:
    return (
        subscription.connection_id,
        location_text(subscription.smp_router, Scheme.SMP),
        location_text(subscription.ntf_router, Scheme.NTF),
        subscription.phase.value,
        None if subscription.action is None else subscription.action.value,
        subscription.due_at,
        subscription.notifier_id,
        subscription.subscription_id,
        subscription.token_id,
        None if subscription.status is None else subscription_status_text(subscription.status),
        subscription.version,
    )


def read_subscription(row: Row) -> AgentSubscription:
    connection_id, smp_router, ntf_router, phase, action, due_at, *rest = row
    notifier_id, subscription_id, token_id, status, version = rest
    return AgentSubscription(
        connection_id,
        location(smp_router),
        location(ntf_router),
        SubscriptionPhase(phase),
        None if action is None else NextAction(action),
        due_at,
        notifier_id,
        subscription_id,
        token_id,
        None if status is None else parse_subscription_status(status),
        version,
    )
