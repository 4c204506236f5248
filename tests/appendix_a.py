"""The common inputs of the test vectors in smp.md, Appendix A."""

from __future__ import annotations

import hashlib
from typing import Final

from tocsin.crypto.keys import Ed448PrivateKey, Ed25519PrivateKey, X25519PrivateKey

a: Final = X25519PrivateKey(bytes(range(0x01, 0x21)))
b: Final = X25519PrivateKey(bytes(range(0x21, 0x41)))
A: Final = a.public
B: Final = b.public
S: Final = bytes.fromhex("a84dc7c3c8f058b1b2dc4cd1e9b5dc0a7987f88b6a9564cde3391fc421159e77")
SID: Final = bytes(range(0x20))
CORR: Final = bytes(range(0x18))
ENT: Final = b"\xe1" * 24
N: Final = bytes(range(0x64, 0x7C))
MID: Final = bytes(range(0xA0, 0xB8))
TS: Final = 1700000000
E: Final = Ed25519PrivateKey(b"\x01" * 32)
E448: Final = Ed448PrivateKey(b"\x02" * 57)
X: Final = X25519PrivateKey(b"\x03" * 32)
V: Final = Ed25519PrivateKey(b"\x09" * 32)
KEY_HASH: Final = hashlib.sha256(b"ca der").digest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
