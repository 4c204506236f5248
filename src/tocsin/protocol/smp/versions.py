"""SMP versions by what each added (smp.md 4.1)."""

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
"""Not released (smp.md Appendix C): counts and hashes of service subscriptions. Offered only if it is switched on."""

SUPPORTED: Final = VersionRange(6, 18)
WITHOUT_ALPN: Final = VersionRange(6, 6)
PROXIED: Final = VersionRange(8, 17)
"""The versions that a proxy offers to its clients, limited to those of the relay."""
PROXY_TO_OLD_RELAY: Final = 10
"""The newest version that a proxy uses with a relay without the proxy flag."""
