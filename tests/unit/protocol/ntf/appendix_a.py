"""The inputs of the test vectors in ntf.md, Appendix A."""

from __future__ import annotations

from typing import Final

from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

TOKEN_KEY: Final = Ed25519PrivateKey(b"\x01" * 32)
CLIENT_DH: Final = X25519PrivateKey(b"\x02" * 32)
ROUTER_DH: Final = X25519PrivateKey(b"\x03" * 32)
CODE: Final = b"\x04" * 32
PUSH_NONCE: Final = b"\x05" * 24
CORR: Final = b"\x06" * 24
SESSION: Final = b"\x07" * 32
TOKEN_ID: Final = b"\x08" * 24
SUBSCRIPTION_ID: Final = b"\x09" * 24
NOTIFIER_ID: Final = b"\x0a" * 24
NOTIFIER_KEY: Final = Ed25519PrivateKey(b"\x0b" * 32)
SMP_ROUTER: Final = RouterLocation(("smp.example.com",), "5223", b"\x0c" * 32)
QUEUE: Final = NotifierQueue(SMP_ROUTER, NOTIFIER_ID)
