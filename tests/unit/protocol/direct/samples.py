"""Parties and values for tests of direct notifications."""

from __future__ import annotations

from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.packets import PacketKind, Statement, seal_packet
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

SMP_LOCATION = RouterLocation(("smp.example.com", "a" * 56 + ".onion"), "", bytes(range(32)))
NTF_LOCATION = RouterLocation(("ntf.example.com",), "", bytes(range(32, 64)))
NTF_IDENTITY = NTF_LOCATION.key_hash
TOKEN_ID = b"t" * 24
TOKEN_KEY = Ed25519PrivateKey(b"\x11" * 32)
NTF_KEY = X25519PrivateKey(b"\x22" * 32)
EPHEMERAL = X25519PrivateKey(b"\x33" * 32)
OFFER = NtfKeyOffer(NTF_KEY.public, 1_900_000_000)
KEYS = {OFFER.key_id: NTF_KEY}
QUEUE = NotifierQueue(SMP_LOCATION, b"n" * 24)


def sealed(kind: PacketKind = PacketKind.ASSOCIATE, queue: NotifierQueue = QUEUE) -> bytes:
    return seal_packet(
        Statement(kind, TOKEN_ID, queue),
        ntf_identity=NTF_IDENTITY,
        token_key=TOKEN_KEY,
        offer=OFFER,
        ephemeral=EPHEMERAL,
    )
