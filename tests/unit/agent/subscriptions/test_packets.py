"""Packets as the device seals them, opened as the NTF router does."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.doubles.agent_samples import NTF, SMP, agent_token, receive_queue
from tocsin.agent.store.records import AgentToken
from tocsin.agent.subscriptions.notifiers import DirectNotifierRequest
from tocsin.agent.subscriptions.packets import Packets
from tocsin.crypto.keys import Ed448PrivateKey, Ed25519PrivateKey, X25519PrivateKey
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.packets import PACKET_BYTES, PacketKind, open_packet
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import AssociateQueue
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

NTF_KEY = X25519PrivateKey(b"x" * 32)
OFFER = NtfKeyOffer(NTF_KEY.public, 1000)
TOKEN_KEY = Ed25519PrivateKey(b"k" * 32)
TOKEN = agent_token(key=TOKEN_KEY.der, ntf_key=OFFER)
WIDE = replace(SMP, hosts=tuple(f"{number}.{'a' * 50}.example.com" for number in range(4)))
"""Its hosts do not fit a packet."""


def packets() -> Packets:
    made = Packets.of(TOKEN)
    assert made is not None
    return made


@pytest.mark.parametrize("kind", PacketKind)
def test_packet_says_whose_queue_it_is_to_this_ntf_router_alone(kind: PacketKind) -> None:
    seal = packets().associate if kind is PacketKind.ASSOCIATE else packets().dissociate
    packet = seal(SMP, b"n" * 24)
    assert packet is not None
    assert len(packet) == PACKET_BYTES
    opened = open_packet(packet, {OFFER.key_id: NTF_KEY})
    assert opened.statement == (kind, TOKEN.token_id, NotifierQueue(SMP, b"n" * 24))
    assert opened.signed_by(TOKEN_KEY.public, NTF.key_hash)
    assert not opened.signed_by(TOKEN_KEY.public, b"another NTF router")
    assert packet != seal(SMP, b"n" * 24)


@pytest.mark.parametrize(
    "token",
    [
        None,
        replace(TOKEN, ntf_key=None),
        replace(TOKEN, token_id=None),
        replace(TOKEN, key=Ed448PrivateKey(b"k" * 57).der),
    ],
    ids=["no token", "no key of the NTF router", "not registered", "another kind of key"],
)
def test_token_that_cannot_sign_packets_makes_none(token: AgentToken | None) -> None:
    assert Packets.of(token) is None


def test_expired_key_is_told_from_none() -> None:
    assert Packets.at(TOKEN, 999.0) is not None
    assert Packets.at(TOKEN, 1000.0) is None
    assert Packets.of(TOKEN) is not None


def test_smp_router_whose_hosts_do_not_fit_is_used_in_the_old_way() -> None:
    assert packets().associate(WIDE, b"n" * 24) is None
    assert DirectNotifierRequest.sealed(packets(), WIDE, MinimumPriority.ALL) is None


def test_notifier_id_follows_from_the_correlation_id_and_is_never_used_twice() -> None:
    wishes = [DirectNotifierRequest.sealed(packets(), SMP, MinimumPriority.PRIORITY) for _ in range(2)]
    first, second = (wish for wish in wishes if wish is not None)
    assert first.subscription.notifier_id == ids_for(first.corr_id).notifier_id
    assert first.corr_id != second.corr_id
    queue = receive_queue("a", key=Ed25519PrivateKey(os.urandom(32)).der)
    request = first.request(queue, b"the end of the former")
    assert (request.entity_id, request.corr_id) == (queue.recipient_id, first.corr_id)
    assert request.command == AssociateQueue(first.subscription, b"the end of the former")
    assert first.subscription.minimum is MinimumPriority.PRIORITY


def test_nothing_secret_shows() -> None:
    assert TOKEN_KEY.raw.hex() not in repr(packets())
    assert str(TOKEN_KEY.raw) not in repr(packets())
