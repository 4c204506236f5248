"""Records of an NTF store as rows of the reference's tables, and back (ntf.md 5.3)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from asyncpg import Record

from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.errors import DecodeError, StoreError
from tocsin.ntf_router.store.records import SubscriptionRecord, TokenRecord
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import TokenStatus, parse_subscription_status
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION

TOKEN_COLUMNS: Final = """
    t.token_id, t.push_provider, t.push_provider_token, t.status AS token_status, t.verify_key, t.dh_priv_key,
    t.dh_secret, t.reg_code, t.cron_interval, t.cron_sent_at, t.updated_at,
    coalesce(r.registered_at, 0) AS registered_at
"""  # noqa: S105
TOKENS: Final = "tokens t LEFT JOIN token_registrations r ON r.token_id = t.token_id"
CRON_DUE: Final = """
    t.cron_interval > 0 AND coalesce(t.cron_sent_at, 0) + t.cron_interval * 60 < {now}
    AND NOT EXISTS (
        SELECT FROM last_notifications l WHERE l.token_id = t.token_id
            AND floor(extract(epoch FROM l.sent_at)) + t.cron_interval * 60 >= {now}
    )
    AND NOT EXISTS (SELECT FROM pending_notifications p WHERE p.token_id = t.token_id)
"""
"""Condition of tokens whose periodic push is due (`TokenStore.cron_due`)."""
SUBSCRIPTION_COLUMNS: Final = """
    s.subscription_id, s.token_id, s.smp_notifier_id, s.smp_notifier_key, s.status, s.ntf_service_assoc,
    v.smp_host, v.smp_port, v.smp_keyhash
"""
SUBSCRIPTIONS: Final = "subscriptions s JOIN smp_servers v ON v.smp_server_id = s.smp_server_id"

NO_KEY: Final = Ed25519PrivateKey.der_prefix + bytes(Ed25519PrivateKey.raw_bytes)
"""The key of queues of direct notifications, which have none: the table requires one."""
PROVIDERS: Final = {provider.text: provider for provider in PushProvider}
REFERENCE_WEB_PUSH: Final = f"{PushProvider.WEBPUSH.text} https://"
_ORIGIN: Final = re.compile(rb"https://[^/? ]*")


def provider_of(text: str) -> PushProvider | None:
    """Return the provider that a row names, or None for one that is not known."""
    if text.startswith(REFERENCE_WEB_PUSH):
        return PushProvider.WEBPUSH
    return PROVIDERS.get(text)


def device_token_columns(token: DeviceToken) -> tuple[str, bytes]:
    """Return push_provider and push_provider_token.

    The reference has the origin of a Web Push service in the first column (ntf-webpush.md 2.4), and so have its tokens
    here. Compact tokens, which it does not know, are whole.
    """
    if token.is_reference_web_push and (origin := _ORIGIN.match(token.token)):
        return f"{token.provider.text} {origin[0].decode('latin-1')}", token.token[origin.end() :]
    return token.provider.text, token.token


def _device_token(provider: str, token: bytes) -> DeviceToken:
    if provider.startswith(REFERENCE_WEB_PUSH):
        origin = provider.removeprefix(PushProvider.WEBPUSH.text).lstrip().encode("latin-1")
        return DeviceToken(PushProvider.WEBPUSH, origin + token)
    return DeviceToken(PROVIDERS[provider], token)


def sql_list(states: Iterable[StrEnum]) -> str:
    """Return the list of an SQL `IN`, such as `('ACTIVE', 'PENDING')`."""
    return f"({', '.join(repr(state.value) for state in sorted(states))})"


def status_text(status: TokenStatus) -> str:
    return status.text(INVALID_REASON_VERSION)


def token_of_row(row: Record) -> TokenRecord:
    """Return the record of a row. Raises StoreError without the row's secrets."""
    try:
        return TokenRecord(
            row["token_id"],
            _device_token(row["push_provider"], row["push_provider_token"]),
            TokenStatus.parse(row["token_status"]),
            row["verify_key"],
            row["dh_priv_key"].removeprefix(X25519PrivateKey.der_prefix),
            row["dh_secret"],
            row["reg_code"],
            row["registered_at"],
            row["cron_interval"],
            row["cron_sent_at"],
            row["updated_at"],
        )
    except (KeyError, DecodeError):
        raise StoreError("a token in the database has an unknown provider or status") from None


def token_row(token: TokenRecord) -> tuple[object, ...]:
    """Return the values in the order of the table's columns."""
    return (
        token.token_id,
        *device_token_columns(token.device_token),
        status_text(token.status),
        token.verify_key,
        X25519PrivateKey.der_prefix + token.dh_private_key,
        token.dh_secret,
        token.code,
        token.cron_minutes,
        token.cron_sent_at,
        token.updated_at,
    )


def subscription_of_row(row: Record) -> SubscriptionRecord:
    """Return the record of a row. Raises StoreError without the row's secrets."""
    try:
        return SubscriptionRecord(
            row["subscription_id"],
            row["token_id"],
            queue_of_row(row),
            b"" if row["smp_notifier_key"] == NO_KEY else row["smp_notifier_key"],
            parse_subscription_status(row["status"]),
            row["ntf_service_assoc"],
        )
    except DecodeError:
        raise StoreError("a subscription in the database has an unknown status") from None


def queue_of_row(row: Record) -> NotifierQueue:
    return NotifierQueue(router_of_row(row), row["smp_notifier_id"])


def router_of_row(row: Record) -> RouterLocation:
    return router_of(row["smp_host"], row["smp_port"], row["smp_keyhash"])


@lru_cache(maxsize=4096)
def router_of(host: str, port: str, key_hash: bytes) -> RouterLocation:
    """Return the router of columns, always the same object for the same router."""
    try:
        raw_hash = base64.urlsafe_b64decode(key_hash)
    except binascii.Error:
        raise StoreError("an SMP router in the database has no key hash") from None
    return RouterLocation(tuple(host.split(",")), port, raw_hash)


def router_row(router: RouterLocation) -> tuple[str, str, bytes]:
    """Return the columns of a router. The key hash is base64 text, as in the reference.

    Logs of older versions may have a host with a NUL, which PostgreSQL cannot hold. Nobody can resolve it, and a router
    is known by its fingerprint, so another character takes its place.
    """
    return (
        ",".join(router.hosts).replace("\0", "\ufffd"),
        router.port,
        base64.urlsafe_b64encode(router.key_hash),
    )


def identity_of(router: RouterLocation) -> bytes:
    """Return the column by which a router is known, whichever hosts and ports clients name."""
    return base64.urlsafe_b64encode(router.key_hash)


def time_of(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
