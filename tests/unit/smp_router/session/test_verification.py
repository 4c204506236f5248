"""What a refused command costs: the same cryptography, whatever is wrong with it (smp.md 5.3, smp-tests.md 7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Final, cast

import pytest

from tests.doubles.cryptographic_work import work
from tests.doubles.smp_harness import ed448, ed25519, x25519
from tocsin.crypto.keys import (
    AuthPrivateKey,
    AuthPublicKey,
    Ed25519PrivateKey,
    X25519PrivateKey,
)
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.messages import Command
from tocsin.protocol.sessions import (
    BlockCoder,
    ClientSession,
    ReceivedCommand,
    RouterSession,
    ServicePeer,
    ServiceRole,
    ServiceSession,
)
from tocsin.protocol.smp import recipient_commands as commands
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.queue_modes import LinkData, NotifierKeys, QueueMode
from tocsin.protocol.smp.sender_commands import (
    MessageFlags,
    SecureLinkedQueue,
    SecureQueueBySender,
    SendMessage,
)
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import SmpRequest
from tocsin.smp_router.session.verification import FEWEST_CHECKS, verify
from tocsin.smp_router.store.memory import queue_index
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueRecord

__all__ = ["work"]  # a fixture

RECIPIENT, SENDER, NOTIFIER, LINK = b"r" * 24, b"s" * 24, b"n" * 24, b"l" * 24
IDS: Final = (RECIPIENT, SENDER, NOTIFIER, LINK)
DATA: Final = LinkData(b"fixed", b"user")
SESSION_ID: Final = b"\x01" * 32
SESSION_KEY: Final = X25519PrivateKey(b"\x02" * 32)
SERVICE_KEY: Final = Ed25519PrivateKey(b"\x03" * 32)
FINGERPRINT: Final = b"\x04" * 32
NO_PEER: Final = cast(Peer, None)
"""Verification hands it on and does not look at it."""

MakeKey = Callable[[], AuthPrivateKey]
KEYS: Final[dict[str, MakeKey]] = {"25519": ed25519, "448": ed448, "X": x25519}
WORK: Final = {"25519": ["Ed25519"], "448": ["Ed448"], "X": ["X25519", "authenticator"]}
"""What one verification with a key of this algorithm does."""

COMMANDS: Final[dict[str, tuple[bytes, Callable[[AuthPublicKey], Command]]]] = {
    "SUB": (RECIPIENT, lambda _key: commands.Subscribe()),
    "KEY": (RECIPIENT, commands.SecureQueue),
    "RKEY": (RECIPIENT, lambda key: commands.ReplaceRecipientKeys((key,))),
    "LSET": (RECIPIENT, lambda _key: commands.SetLinkData(LINK, DATA)),
    "LDEL": (RECIPIENT, lambda _key: commands.DeleteLinkData()),
    "NKEY": (RECIPIENT, lambda key: commands.EnableNotifications(NotifierKeys(key, SESSION_KEY.public))),
    "NDEL": (RECIPIENT, lambda _key: commands.DisableNotifications()),
    "GET": (RECIPIENT, lambda _key: commands.GetMessage()),
    "ACK": (RECIPIENT, lambda _key: commands.AcknowledgeMessage(b"m" * 24)),
    "OFF": (RECIPIENT, lambda _key: commands.SuspendQueue()),
    "DEL": (RECIPIENT, lambda _key: commands.DeleteQueue()),
    "QUE": (RECIPIENT, lambda _key: commands.InspectQueue()),
    "SEND": (SENDER, lambda _key: SendMessage(MessageFlags(notify=False), b"hello")),
    "SKEY": (SENDER, SecureQueueBySender),
    "LKEY": (LINK, SecureLinkedQueue),
    "NSUB": (NOTIFIER, lambda _key: SubscribeNotifications()),
}
"""By tag: the id that a command names, and the command; the key inside it, if it has one, is the queue's."""


def refusal(tag: str, used: str) -> list[str]:
    """What it costs to refuse a command: the recipient's as much as if the queue had several keys."""
    return WORK[used] * (FEWEST_CHECKS if COMMANDS[tag][0] == RECIPIENT else 1)


@dataclass
class Verifier:
    """A store with one queue, all of whose keys are of one algorithm, and both ends of a session."""

    queue_key: AuthPrivateKey
    secured: bool = True
    service: bool = False
    store: SmpMemoryStore = field(default_factory=SmpMemoryStore)

    def __post_init__(self) -> None:
        der = self.queue_key.public.der
        self.store.add_queue(
            QueueRecord(
                RECIPIENT,
                (der,),
                bytes(32),
                SENDER,
                der if self.secured else None,
                QueueMode.MESSAGING,
                QueueLink(LINK, DATA),
                NotifierRecord(NOTIFIER, der, bytes(32)),
            )
        )
        coder = BlockCoder(SMP.block_size)
        ours = ServicePeer(b"S" * 24, FINGERPRINT, ServiceRole.NOTIFIER, SERVICE_KEY.public)
        theirs = ServiceSession(b"S" * 24, FINGERPRINT, SERVICE_KEY)
        self.router = RouterSession(SMP, 18, SESSION_ID, coder, SESSION_KEY, ours if self.service else None)
        self.client = ClientSession(
            SMP, 18, SESSION_ID, coder, SESSION_KEY.public, theirs if self.service else None
        )

    def received(self, command: Command, entity_id: bytes, key: AuthPrivateKey | None) -> ReceivedCommand:
        request = self.client.request(os.urandom(24), entity_id, command, key)
        received = self.router.read_transmission(request)
        assert isinstance(received, ReceivedCommand)
        return received

    def accepts(self, received: ReceivedCommand) -> bool:
        verdict = verify(self.store, NO_PEER, self.router, received)
        if isinstance(verdict, SmpRequest):
            return True
        assert verdict is ErrorCode.AUTH
        return False


def refused_work(verifier: Verifier, tag: str, used: AuthPrivateKey, work: list[str]) -> dict[str, list[str]]:
    """The work of refusing a command for each thing that can be wrong with it."""
    own_id, make = COMMANDS[tag]
    command = make(verifier.queue_key.public)
    cases = {"wrong key": own_id, "no entity": b"1234"}
    cases |= {f"other kind of id, {bytes(each[:1])!r}": each for each in IDS if each != own_id}
    done = {}
    for case, entity_id in cases.items():
        received = verifier.received(command, entity_id, used)
        work.clear()
        assert not verifier.accepts(received), case
        done[case] = list(work)
    return done


@pytest.mark.parametrize("used", KEYS)
@pytest.mark.parametrize("of_queue", KEYS)
@pytest.mark.parametrize("tag", COMMANDS)
def test_whatever_is_wrong_costs_the_same_verifications_with_the_algorithm_used(
    tag: str, of_queue: str, used: str, work: list[str]
) -> None:
    """A wrong key, no such entity and an id of another kind: the time of the answer tells them not apart."""
    verifier = Verifier(KEYS[of_queue]())
    done = refused_work(verifier, tag, KEYS[used](), work)
    assert set(map(tuple, done.values())) == {tuple(refusal(tag, used))}


@pytest.mark.parametrize("used", KEYS)
@pytest.mark.parametrize(
    "of_queue", [keys for n in (2, 3, 4) for keys in combinations_with_replacement(KEYS, n)]
)
def test_the_number_of_keys_does_not_show(of_queue: tuple[str, ...], used: str, work: list[str]) -> None:
    verifier = Verifier(KEYS[of_queue[0]]())
    keys = tuple(KEYS[name]().public.der for name in of_queue)
    queue = verifier.store.queue_by_recipient(RECIPIENT)
    assert queue is not None
    assert verifier.store.update_queue(replace(queue, recipient_keys=keys))
    done = refused_work(verifier, "SUB", KEYS[used](), work)
    assert set(map(tuple, done.values())) == {tuple(refusal("SUB", used))}


@pytest.mark.parametrize("tag", COMMANDS)
@pytest.mark.parametrize("of_queue", KEYS)
def test_a_key_that_was_right_before_is_refused_no_sooner(tag: str, of_queue: str, work: list[str]) -> None:
    """Agreements with X25519 keys are kept for the session: the owner's, when the owner signs with a wrong one."""
    key = KEYS[of_queue]()
    verifier = Verifier(key)
    own_id, make = COMMANDS[tag]
    for _ in range(2):
        assert verifier.accepts(verifier.received(make(key.public), own_id, key))
    done = refused_work(verifier, tag, KEYS[of_queue](), work)
    assert {tuple(sorted(each)) for each in done.values()} == {tuple(sorted(refusal(tag, of_queue)))}


@pytest.mark.parametrize("used", KEYS)
def test_a_signed_message_costs_the_same_where_it_must_not_be_signed(used: str, work: list[str]) -> None:
    verifier = Verifier(ed25519(), secured=False)
    done = refused_work(verifier, "SEND", KEYS[used](), work)
    assert set(map(tuple, done.values())) == {tuple(WORK[used])}


def test_an_unsigned_message_costs_nothing_whether_or_not_the_queue_exists(work: list[str]) -> None:
    verifier = Verifier(ed25519())
    command = SendMessage(MessageFlags(notify=False), b"hello")
    for entity_id in (SENDER, RECIPIENT, b"1234"):
        assert not verifier.accepts(verifier.received(command, entity_id, None))
    assert work == []


@pytest.mark.parametrize("used", KEYS)
@pytest.mark.parametrize("of_queue", KEYS)
def test_a_service_pays_for_both_signatures_whatever_is_wrong(
    of_queue: str, used: str, work: list[str]
) -> None:
    verifier = Verifier(KEYS[of_queue](), service=True)
    done = refused_work(verifier, "NSUB", KEYS[used](), work)
    assert set(map(tuple, done.values())) == {("Ed25519", *WORK[used])}


@pytest.mark.parametrize("tag", COMMANDS)
@pytest.mark.parametrize("of_queue", KEYS)
def test_the_queues_own_key_is_accepted(tag: str, of_queue: str) -> None:
    """So that the tests above refuse for the reasons they name."""
    key = KEYS[of_queue]()
    own_id, make = COMMANDS[tag]
    verifier = Verifier(key)
    assert verifier.accepts(verifier.received(make(key.public), own_id, key))


def test_every_authorized_command_about_a_queue_is_measured() -> None:
    elsewhere = {"NEW", "LGET", "PING", "PRXY", "PFWD", "RFWD", "RSLV", "SUBS", "NSUBS"}
    assert {kind.tag.decode() for kind in SMP.commands.kinds} - elsewhere == set(COMMANDS)


@pytest.mark.parametrize("tag", COMMANDS)
def test_a_queue_is_read_whether_or_not_it_exists(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacking a record takes 10 µs, which `make audit-timing` can see."""
    read: list[bytes] = []
    unpack = queue_index.unpack_queue

    def note(recipient_id: bytes, packed: bytes) -> QueueRecord:
        read.append(recipient_id)
        return unpack(recipient_id, packed)

    monkeypatch.setattr(queue_index, "unpack_queue", note)
    verifier, key = Verifier(ed25519()), ed25519()
    entity_id, make = COMMANDS[tag]
    for each in (entity_id, b"missing".ljust(24)):
        read.clear()
        verify(verifier.store, NO_PEER, verifier.router, verifier.received(make(key.public), each, key))
        assert len(read) == 1
