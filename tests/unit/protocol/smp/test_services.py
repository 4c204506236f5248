"""smp.md 5.4: roles, and what the session key of a service must have signed."""

from __future__ import annotations

import pytest

from tests.appendix_a import CORR, ENT, SID, B, E, V
from tests.peers import SERVICE_ID
from tests.strategies import MESSAGES_WITH_BODY
from tocsin.protocol.error_codes import CommandFault, ErrorCode, RouterError
from tocsin.protocol.messages import Command
from tocsin.protocol.ping import Ping
from tocsin.protocol.sessions import (
    BlockCoder,
    ClientSession,
    ReceivedCommand,
    RouterSession,
    ServicePeer,
    ServiceRole,
    ServiceSession,
)
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.proxy_commands import RelayForwarded
from tocsin.protocol.smp.recipient_commands import (
    CreateQueue,
    DeleteQueue,
    GetMessage,
    Subscribe,
    SubscribeService,
)
from tocsin.protocol.smp.services import role_allows, service_fault

FINGERPRINT = b"\x66" * 32
M, N, P = ServiceRole.MESSAGING, ServiceRole.NOTIFIER, ServiceRole.PROXY


def peer(role: ServiceRole, service_id: bytes = SERVICE_ID) -> ServicePeer:
    return ServicePeer(service_id, FINGERPRINT, role, V.public)


def received(command: Command, *, service: bool, entity: bytes = ENT, signed: bool = True) -> ReceivedCommand:
    """A command as it arrives from a service session or from an ordinary one."""
    own = ServiceSession(SERVICE_ID, FINGERPRINT, V) if service else None
    client = ClientSession(SMP, 18, SID, BlockCoder(SMP.block_size), B, own)
    item = RouterSession(SMP, 18, SID, BlockCoder(SMP.block_size), None).read_transmission(
        client.request(CORR, entity, command, E if signed else None)
    )
    assert isinstance(item, ReceivedCommand)
    return item


NEW = CreateQueue(E.public, B)
NSUB, NSUBS, SUB, SUBS = (
    SubscribeNotifications(),
    SubscribeServiceNotifications(),
    Subscribe(),
    SubscribeService(),
)


@pytest.mark.parametrize("kind", SMP.commands.kinds, ids=lambda kind: kind.tag.decode())
def test_each_role_has_its_commands(kind: type[Command]) -> None:
    command = object.__new__(kind) if kind in MESSAGES_WITH_BODY else kind()
    tag = kind.tag.decode()
    assert role_allows(M, command) == (tag not in {"NSUB", "NSUBS", "RFWD"})
    assert role_allows(N, command) == (tag in {"NSUB", "NSUBS", "PING"})
    assert role_allows(P, command) == (tag in {"RFWD", "PING"})


@pytest.mark.parametrize(
    ("command", "role"), [(SUB, N), (DeleteQueue(), N), (NSUB, M), (NSUBS, M), (NSUB, P), (SUB, P)]
)
def test_the_role_is_checked_before_the_signature(command: Command, role: ServiceRole) -> None:
    for signed in (True, False):
        item = received(command, service=signed)
        assert service_fault(item, peer(role)) is CommandFault.PROHIBITED


@pytest.mark.parametrize(("command", "role"), [(NSUB, N), (SUB, M), (NEW, M)], ids=["NSUB", "SUB", "NEW"])
def test_subscriptions_and_new_queues_are_signed_by_the_service_too(
    command: Command, role: ServiceRole
) -> None:
    entity = b"" if command is NEW else ENT
    good = received(command, service=True, entity=entity)
    assert service_fault(good, peer(role)) is None
    missing = received(command, service=False, entity=entity)
    assert service_fault(missing, peer(role)) is ErrorCode.SERVICE
    wrong = good._replace(service_signature=E.sign(good.authorized))
    assert service_fault(wrong, peer(role)) is ErrorCode.SERVICE
    with_fingerprint = good._replace(service_signature=V.sign(FINGERPRINT + good.authorized))
    assert service_fault(with_fingerprint, peer(role)) is ErrorCode.SERVICE


@pytest.mark.parametrize(("command", "role"), [(NSUBS, N), (SUBS, M)], ids=["NSUBS", "SUBS"])
def test_the_service_subscribes_with_its_session_key_and_its_own_id(
    command: Command, role: ServiceRole
) -> None:
    good = received(command, service=True, entity=SERVICE_ID)
    assert service_fault(good, peer(role)) is None
    cases: list[ReceivedCommand] = [
        received(command, service=False, entity=SERVICE_ID),
        received(command, service=True, entity=ENT),
        good._replace(service_signature=V.sign(good.authorized)),
        good._replace(auth=V.sign(FINGERPRINT + good.authorized)),
    ]
    for case in cases:
        assert service_fault(case, peer(role)) is ErrorCode.SERVICE


@pytest.mark.parametrize("command", [DeleteQueue(), GetMessage()])
def test_other_commands_have_no_service_signature(command: Command) -> None:
    item = received(command, service=True)
    assert item.service_signature == b""
    assert service_fault(item, peer(M)) is None
    signed = item._replace(service_signature=V.sign(item.authorized))
    assert service_fault(signed, peer(M)) is ErrorCode.SERVICE


@pytest.mark.parametrize(
    ("command", "fault"),
    [(NSUB, None), (SUB, None), (DeleteQueue(), None), (NSUBS, ErrorCode.SERVICE), (SUBS, ErrorCode.SERVICE)],
)
def test_outside_a_service_session_nothing_may_be_signed_by_a_service(
    command: Command, fault: RouterError | None
) -> None:
    item = received(command, service=False)
    assert service_fault(item, None) == fault
    signed = item._replace(service_signature=V.sign(item.authorized))
    assert service_fault(signed, None) is ErrorCode.SERVICE


def test_proxies_and_pings_pass() -> None:
    forwarded = received(RelayForwarded(b"x"), service=True, entity=b"", signed=False)
    assert service_fault(forwarded, peer(P)) is None
    ping = received(Ping(), service=True, entity=b"", signed=False)
    for role in ServiceRole:
        assert service_fault(ping, peer(role)) is None
