"""SMP versions by what each added (smp.md 4.1, v7.md 1)."""

from __future__ import annotations

from typing import Final

from tocsin.wire.versions import VersionRange

AUTH_COMMANDS_VERSION: Final = 7
"""X25519 authenticators, signed session key in the server hello, session id implied."""
SENDING_PROXY_VERSION: Final = 8
SENDER_AUTH_KEY_VERSION: Final = 9
"""SKEY, and the flag for it in NEW and IDS."""
DELETED_EVENT_VERSION: Final = 10
ENCRYPTED_BLOCK_VERSION: Final = 11
PROXY_FLAG_VERSION: Final = 14
SHORT_LINKS_VERSION: Final = 15
SERVICE_CERTS_VERSION: Final = 16
NEW_NOTIFIER_CREDS_VERSION: Final = 17
SERVICE_HASH_VERSION: Final = 19
"""Counts and hashes of service subscriptions; services that receive messages (v7.md 2)."""
NAMES_VERSION: Final = 20
"""RSLV (v7.md 3)."""

SUPPORTED: Final = VersionRange(6, 20)
WITHOUT_ALPN: Final = VersionRange(6, 6)
_PROXIED: Final = {NAMES_VERSION: 20, SERVICE_HASH_VERSION: 18}
_PROXIED_BEFORE: Final = 17
PROXY_TO_OLD_RELAY: Final = 10
"""The newest version that a proxy uses with a relay without the proxy flag."""


def proxied(highest: int) -> VersionRange:
    """Return the versions that a proxy of this version offers to its clients, if the relay has them (v7.md 1).

    Names must be resolvable through proxies, so v20 is offered with v20. Before, it was one version less.
    """
    return VersionRange(SENDING_PROXY_VERSION, _PROXIED.get(min(highest, NAMES_VERSION), _PROXIED_BEFORE))
