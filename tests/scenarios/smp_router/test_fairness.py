"""No command stalls others: the most expensive blocks of each command at each version, and a client that pings.

Two tests walk the table of commands. One measures PING next to quiet PINGs of the same run. The other replaces
cryptography by counted steps, so that it can say exactly how much work happens in one iteration of the event loop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

import pytest

from tests.doubles.cryptographic_work import work
from tests.doubles.fairness import MOST_TIMES_QUIET, StretchCounter, full_block, ping_ratio, quiet_ping
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import NtfIdentity, direct_settings, some_packet
from tests.doubles.smp_harness import (
    AUTH,
    OK,
    Asked,
    Notifier,
    Queue,
    SmpHarness,
    create_command,
    ed448,
    ed25519,
    send_command,
    smp_router,
    until,
    x25519,
)
from tocsin.crypto.keys import AuthPrivateKey, Ed448PrivateKey, Ed448PublicKey
from tocsin.operate.command_table import CommandTable
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.dialects import DIRECT_SMP
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    CreateNotifyingQueue,
    DeleteQueueProven,
    DisableNotificationsProven,
    NtfSubscription,
    RegisterNtfRouter,
    SendPacketAgain,
    SetMinimumPriority,
    SubscribeNotificationsAs,
    SubscribeNtfRouter,
)
from tocsin.protocol.messages import Command
from tocsin.protocol.ping import Ping
from tocsin.protocol.smp import names, notifier_commands, proxy_commands, sender_commands
from tocsin.protocol.smp import recipient_commands as recipient
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.queue_modes import LinkData, NotifierKeys, QueueMode
from tocsin.protocol.smp.versions import NEW_NOTIFIER_CREDS_VERSION
from tocsin.smp_router.session.verification import FEWEST_CHECKS
from tocsin.smp_router.settings.settings import HIGHEST_VERSION, SmpNameSettings, SmpProxySettings
from tocsin.transport.turns import SLICE_SECONDS

__all__ = ["work"]  # a fixture

KEYS: Final = 225
"""As many Ed448 keys as RKEY can name in one block."""
VERSIONS: Final = range(SMP.supported.lowest, HIGHEST_VERSION + 1)
BLOCKS: Final = 4
"""As many as the router reads of one connection before it stops reading."""
LINK: Final = LinkData(bytes(100), bytes(13_000))


@cache
def many_keys() -> tuple[Ed448PrivateKey, ...]:
    return tuple(ed448() for _ in range(KEYS))


@dataclass
class Target:
    """A queue with as many keys as possible, and what commands name."""

    contact: Queue
    messaging: Queue
    notifier: Notifier
    ntf_router: NtfIdentity = field(default_factory=NtfIdentity)

    @property
    def key(self) -> AuthPrivateKey:
        """The one that is tried last."""
        return many_keys()[-1]


async def make_target(router: SmpHarness) -> Target:
    owner = await router.connect()
    contact = await owner.new_queue(mode=QueueMode.CONTACT)
    keys = recipient.ReplaceRecipientKeys(tuple(key.public for key in many_keys()))
    assert await owner.ask(keys, contact.recipient_id, contact.key) == OK
    messaging = await owner.secured_queue(ed448(), ed448())
    return Target(contact, messaging, await owner.enable_notifications(messaging, ed448()))


def of_contact(make: Callable[[], Command]) -> Callable[[Target, bytes], Asked]:
    """A command that any of the queue's many keys may authorize."""
    return lambda target, corr_id: Asked(make(), target.contact.recipient_id, target.key, corr_id)


def of_direct(make: Callable[[Target, bytes], Command]) -> Callable[[Target, bytes], Asked]:
    return lambda target, corr_id: Asked(
        make(target, corr_id), target.contact.recipient_id, target.key, corr_id
    )


def _notifying(target: Target, corr_id: bytes) -> NtfSubscription:
    notifier_id = ids_for(corr_id).notifier_id
    return NtfSubscription(
        x25519().public, target.ntf_router.location, notifier_id, MinimumPriority.ALL, some_packet()
    )


ATTACKS: Final[dict[type[Command], Callable[[Target, bytes], Asked]]] = {
    recipient.CreateQueue: lambda target, corr_id: Asked(
        create_command(target.key, x25519()), b"", target.key, corr_id
    ),
    recipient.Subscribe: of_contact(recipient.Subscribe),
    recipient.SubscribeService: of_contact(recipient.SubscribeService),
    recipient.SecureQueue: of_contact(lambda: recipient.SecureQueue(ed25519().public)),
    recipient.ReplaceRecipientKeys: of_contact(
        lambda: recipient.ReplaceRecipientKeys(tuple(key.public for key in many_keys()[-200:]))
    ),
    recipient.SetLinkData: of_contact(lambda: recipient.SetLinkData(os.urandom(24), LINK)),
    recipient.DeleteLinkData: of_contact(recipient.DeleteLinkData),
    recipient.EnableNotifications: of_contact(
        lambda: recipient.EnableNotifications(NotifierKeys(ed25519().public, x25519().public))
    ),
    recipient.DisableNotifications: of_contact(recipient.DisableNotifications),
    recipient.GetMessage: of_contact(recipient.GetMessage),
    recipient.AcknowledgeMessage: of_contact(lambda: recipient.AcknowledgeMessage(bytes(24))),
    recipient.SuspendQueue: of_contact(recipient.SuspendQueue),
    recipient.DeleteQueue: of_contact(recipient.DeleteQueue),
    recipient.InspectQueue: of_contact(recipient.InspectQueue),
    sender_commands.SecureQueueBySender: lambda target, corr_id: Asked(
        sender_commands.SecureQueueBySender(target.key.public),
        target.messaging.sender_id,
        target.key,
        corr_id,
    ),
    sender_commands.SendMessage: lambda target, corr_id: Asked(
        send_command(b"hello", notify=True), target.messaging.sender_id, target.messaging.sender_key, corr_id
    ),
    sender_commands.SecureLinkedQueue: lambda target, corr_id: Asked(
        sender_commands.SecureLinkedQueue(target.key.public), bytes(24), target.key, corr_id
    ),
    sender_commands.GetLinkData: lambda _target, corr_id: Asked(
        sender_commands.GetLinkData(), bytes(24), None, corr_id
    ),
    notifier_commands.SubscribeNotifications: lambda target, corr_id: Asked(
        notifier_commands.SubscribeNotifications(), target.notifier.notifier_id, target.notifier.key, corr_id
    ),
    notifier_commands.SubscribeServiceNotifications: of_contact(
        notifier_commands.SubscribeServiceNotifications
    ),
    proxy_commands.RequestProxySession: lambda _target, corr_id: Asked(
        proxy_commands.RequestProxySession(RouterLocation((HOST,), "1", bytes(32)), None), b"", None, corr_id
    ),
    proxy_commands.ForwardToRelay: lambda _target, corr_id: Asked(
        proxy_commands.ForwardToRelay(17, x25519().public, bytes(100)), bytes(32), None, corr_id
    ),
    proxy_commands.RelayForwarded: lambda _target, corr_id: Asked(
        proxy_commands.RelayForwarded(bytes(16_000)), b"", None, corr_id
    ),
    names.ResolveName: lambda _target, corr_id: Asked(names.ResolveName("a.simplex"), b"", None, corr_id),
    Ping: lambda _target, corr_id: Asked(Ping(), b"", None, corr_id),
    CreateNotifyingQueue: lambda target, corr_id: Asked(
        CreateNotifyingQueue(target.key.public, x25519().public, direct=_notifying(target, corr_id)),
        b"",
        target.key,
        corr_id,
    ),
    SubscribeNotificationsAs: lambda target, corr_id: Asked(
        SubscribeNotificationsAs(bytes(24)), target.notifier.notifier_id, target.notifier.key, corr_id
    ),
    DisableNotificationsProven: of_direct(lambda _target, _id: DisableNotificationsProven()),
    DeleteQueueProven: of_direct(lambda _target, _id: DeleteQueueProven()),
    RegisterNtfRouter: lambda target, corr_id: Asked(
        target.ntf_router.command(bytes(32)), b"", target.ntf_router.key, corr_id
    ),
    SubscribeNtfRouter: lambda target, corr_id: Asked(SubscribeNtfRouter(), bytes(24), target.key, corr_id),
    notifier_commands.AcknowledgeNotifications: lambda _target, corr_id: Asked(
        notifier_commands.AcknowledgeNotifications(0), corr_id=corr_id
    ),
    AssociateQueue: of_direct(lambda target, corr_id: AssociateQueue(_notifying(target, corr_id))),
    SendPacketAgain: of_direct(lambda _target, _id: SendPacketAgain(some_packet())),
    SetMinimumPriority: of_direct(lambda _target, _id: SetMinimumPriority(MinimumPriority.ALL)),
}
"""The most expensive form of each command."""

NEEDS_MANY_CHECKS: Final = (recipient.Subscribe, recipient.GetMessage, SendPacketAgain)


def test_every_command_is_tried() -> None:
    assert set(ATTACKS) == {*SMP.commands.kinds, *DIRECT_SMP.commands.kinds}


def attacks_of(version: int) -> list[tuple[tuple[str, ...] | None, type[Command]]]:
    """The ALPN and the kinds of commands of a version."""
    plain: list[tuple[tuple[str, ...] | None, type[Command]]] = [(None, kind) for kind in SMP.commands.kinds]
    if version < DIRECT_SMP.oldest:
        return plain
    own = set(DIRECT_SMP.commands.kinds) - set(SMP.commands.kinds)
    if version < NEW_NOTIFIER_CREDS_VERSION:
        own.discard(CreateNotifyingQueue)  # NEW has no notifier there
    return plain + [((DIRECT_SMP.alpn,), kind) for kind in own]


def fair_router() -> AbstractAsyncContextManager[SmpHarness]:
    return smp_router(
        highest_version=HIGHEST_VERSION,
        direct=direct_settings(),
        proxy=SmpProxySettings(connect_timeout=1.0, public_relays_only=False),
        names=SmpNameSettings(enabled=True, endpoint=f"http://{HOST}:1"),
    )


@asynccontextmanager
async def attacked(
    router: SmpHarness,
    target: Target,
    version: int,
    alpn: tuple[str, ...] | None,
    kind: type[Command],
    legal: bool,
) -> AsyncIterator[None]:
    """The router has the blocks of an attacker, who reads no answer; afterwards it gives the attacker up."""
    client = await router.connect(version, alpn=alpn)
    block = full_block(client, partial(ATTACKS[kind], target), legal=legal)
    for _ in range(BLOCKS):
        await client.connection.send(block)
    yield
    peer = router.peer_of(client)
    peer.connection.connection.abort()
    await until(lambda: peer not in router.running.router.peers)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_ping_is_answered_soon_while_another_client_sends_the_most_expensive_blocks(
    version: int,
) -> None:
    slow = {}
    async with fair_router() as router:
        victim = await router.connect()
        for alpn, kind in attacks_of(version):
            quiet = await quiet_ping(victim)
            for legal in (False, True):
                target = await make_target(router)
                attack = partial(attacked, router, target, version, alpn, kind, legal)
                ratio = await ping_ratio(victim, quiet, attack)
                if ratio > MOST_TIMES_QUIET:
                    slow[kind.tag, legal] = ratio
    assert slow == {}


@pytest.mark.parametrize("kind", ATTACKS, ids=lambda kind: kind.__name__)
async def test_a_connection_gives_way_after_its_slice(
    kind: type[Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each signature and each executed command is a step; a slice has four."""
    counter = StretchCounter()

    def refuse(*_arguments: object) -> bool:
        counter.steps += 1
        return False

    execute = CommandTable.execute

    def count(*arguments: Any) -> Any:
        counter.steps += 1
        return execute(*arguments)

    async with fair_router() as router:
        target = await make_target(router)
        monkeypatch.setattr(Ed448PublicKey, "verifies", refuse)
        monkeypatch.setattr(CommandTable, "execute", count)
        router.running.router.turns.clock = counter.clock
        client = await router.connect(alpn=None if kind in SMP.commands.kinds else (DIRECT_SMP.alpn,))
        block = full_block(client, partial(ATTACKS[kind], target), legal=False)
        await counter.send(client, [block])
    assert counter.longest <= SLICE_SECONDS / StretchCounter.STEP_SECONDS + 1
    assert kind not in NEEDS_MANY_CHECKS or counter.steps >= len(block) * KEYS


async def test_a_queue_with_many_keys_costs_few_checks_of_a_signature_by_another_algorithm(
    work: list[str],
) -> None:
    """Only keys of the authorization's algorithm can have made it, and without any the work is that of no queue."""
    async with smp_router() as router:
        target, client = await make_target(router), await router.connect()
        work.clear()
        assert await client.ask(recipient.Subscribe(), target.contact.recipient_id, ed25519()) == AUTH
        assert work == ["Ed25519"] * FEWEST_CHECKS
        work.clear()
        assert await client.ask(recipient.Subscribe(), bytes(24), ed25519()) == AUTH
        assert work == ["Ed25519"] * FEWEST_CHECKS
        work.clear()
        assert await client.ask(recipient.Subscribe(), target.contact.recipient_id, x25519()) == AUTH
        assert work.count("Ed448") == 0
