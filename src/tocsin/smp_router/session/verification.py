"""Verification: from a received command to a request, or to an error (smp.md 5.3, 5.4, 6.1, 6.2).

The protocol gives the order of the checks: the queue, the role, the service's signature, the authorization, then
whether the operator blocked the queue. A queue that does not exist costs the same work as a wrong signature.

A queue may have several keys of one algorithm, and a wrong signature is checked with each of them. So that their number
does not show, every refused command for a recipient costs as many checks as a queue with `FEWEST_CHECKS` keys.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

from tocsin.crypto.keys import AuthPublicKey, Ed25519PrivateKey, auth_key_from_der
from tocsin.protocol.direct.smp_commands import (
    RegisterNtfRouter,
    SubscribeNtfRouter,
)
from tocsin.protocol.error_codes import Blocked, ErrorCode, RouterError
from tocsin.protocol.messages import Command, ServiceSigning
from tocsin.protocol.ping import Ping
from tocsin.protocol.sessions import ReceivedCommand, RouterSession
from tocsin.protocol.smp.names import ResolveName
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications, SubscribeNotifications
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession
from tocsin.protocol.smp.recipient_commands import CreateQueue, DeleteQueue, SuspendQueue
from tocsin.protocol.smp.sender_commands import (
    GetLinkData,
    SecureLinkedQueue,
    SecureQueueBySender,
    SendMessage,
)
from tocsin.protocol.smp.services import service_fault
from tocsin.smp_router.direct.keyless_notifiers import is_keyless
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import SmpQueueRequest, SmpRequest
from tocsin.smp_router.store.interface import SmpStore
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord

_WITHOUT_QUEUE: Final = (
    Ping,
    ResolveName,
    RequestProxySession,
    ForwardToRelay,
    RelayForwarded,
    RegisterNtfRouter,
    SubscribeNtfRouter,
    AcknowledgeNotifications,
)
_BY_OTHER_KEYS: Final = (
    SendMessage,
    SecureQueueBySender,
    SecureLinkedQueue,
    GetLinkData,
    SubscribeNotifications,
)
"""Commands about a queue that the recipient's keys do not authorize."""
_ALSO_WHEN_BLOCKED: Final = (SuspendQueue, DeleteQueue, SubscribeNotifications, SendMessage)
"""SEND checks the block itself, after the size of the message."""

FEWEST_CHECKS: Final = 4
"""Checks of signatures before a recipient's command is refused. A queue with more keys of one algorithm costs more."""
_DECOY: Final = NotifierRecord(b"n" * 24, Ed25519PrivateKey(b"\x01" * 32).public.der, bytes(32))
"""Checked in place of a notifier that does not exist. It belongs to nobody."""

Verified: TypeAlias = SmpRequest[Command] | RouterError
"""A verified request, or the error to answer with."""


def verify(store: SmpStore, peer: Peer, session: RouterSession, received: ReceivedCommand) -> Verified:
    """Return the verified request, or the error to answer with."""
    steps = verify_in_steps(store, peer, session, received)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            verified: Verified = end.value
            return verified


def verify_in_steps(
    store: SmpStore, peer: Peer, session: RouterSession, received: ReceivedCommand
) -> Generator[None, None, Verified]:
    """Verify as `verify` does, but yield between the keys of a queue, of which there may be hundreds.

    The queue may change while the caller does something else. Look it up again before the command is executed.
    """
    command = received.command
    queue = None
    if _names_queue(command):
        queue = _find_queue(store, received)
        if queue is None:
            yield from _pretend(store, session, received)
            return ErrorCode.AUTH
    if fault := service_fault(received, session.service):
        return fault
    if queue is not None and _is_for_recipient(command):
        authorized = yield from _verifies_any(session, received, queue.recipient_keys)
    else:
        authorized = _authorized(store, session, received, queue)
    if not authorized:
        return ErrorCode.AUTH
    if (
        queue is not None
        and isinstance(queue.status, Blocked)
        and not isinstance(command, _ALSO_WHEN_BLOCKED)
    ):
        return queue.status
    if queue is None:
        return SmpRequest(peer, session, received.corr_id, received.entity_id, command)
    return SmpQueueRequest(peer, session, received.corr_id, received.entity_id, command, queue=queue)


def _pretend(
    store: SmpStore, session: RouterSession, received: ReceivedCommand
) -> Generator[None, None, None]:
    """Do all the work of checking a wrong signature, including reading the queue and the service's signature."""
    store.pretend_to_read_queue()
    if isinstance(received.command, SubscribeNotifications):
        is_keyless(_DECOY)
    if service_fault(received, session.service) is None and received.auth:
        checks = FEWEST_CHECKS if _is_for_recipient(received.command) else 1
        yield from _pretend_checks(session, received, checks, pause_first=False)


def _pretend_checks(
    session: RouterSession, received: ReceivedCommand, count: int, *, pause_first: bool
) -> Generator[None, None, None]:
    for number in range(count):
        if number or pause_first:
            yield
        _key(_DECOY.key)
        session.pretend_to_verify(received)


def _names_queue(command: Command) -> bool:
    if isinstance(command, (CreateQueue, *_WITHOUT_QUEUE)):
        return False
    return command.service_signing is not ServiceSigning.ALONE


def _is_for_recipient(command: Command) -> bool:
    """Whether the command, which names a queue, needs one of the recipient's keys."""
    return not isinstance(command, _BY_OTHER_KEYS)


def _find_queue(store: SmpStore, received: ReceivedCommand) -> QueueRecord | None:
    match received.command:
        case SendMessage() | SecureQueueBySender():
            return store.queue_by_sender(received.entity_id)
        case SecureLinkedQueue() | GetLinkData():
            return store.queue_by_link(received.entity_id)
        case SubscribeNotifications():
            return store.queue_by_notifier(received.entity_id)
        case _:
            return store.queue_by_recipient(received.entity_id)


def _authorized(
    store: SmpStore, session: RouterSession, received: ReceivedCommand, queue: QueueRecord | None
) -> bool:
    command = received.command
    match command:
        case CreateQueue():
            return session.verifies(received, command.auth_key)
        case SecureQueueBySender() | SecureLinkedQueue():
            return session.verifies(received, command.sender_key)
        case SendMessage():
            assert queue is not None
            return _may_send(session, received, queue)
        case GetLinkData():
            return True
        case SubscribeNotifications():
            assert queue is not None
            assert queue.notifier is not None
            return _may_subscribe(session, received, queue.notifier)
        case RegisterNtfRouter():
            return session.verifies(received, command.credentials.auth_key)
        case SubscribeNtfRouter():
            return _is_ntf_router(store, session, received)
        case _:
            return True


def _may_send(session: RouterSession, received: ReceivedCommand, queue: QueueRecord) -> bool:
    """A secured queue takes only authorized messages; an unsecured one takes only unauthorized messages."""
    if queue.sender_key is None:
        if received.auth:
            session.pretend_to_verify(received)
        return not received.auth
    return bool(received.auth) and session.verifies(received, _key(queue.sender_key))


def _may_subscribe(session: RouterSession, received: ReceivedCommand, notifier: NotifierRecord) -> bool:
    """A notifier of direct notifications has no key; it must look as if it did not exist."""
    if is_keyless(notifier):
        session.pretend_to_verify(received)
        return False
    return session.verifies(received, _key(notifier.key))


def _is_ntf_router(store: SmpStore, session: RouterSession, received: ReceivedCommand) -> bool:
    record = store.direct.ntf_router(received.entity_id)
    if record is None or record.auth_key is None:
        session.pretend_to_verify(received)
        return False
    return session.verifies(received, _key(record.auth_key))


def _verifies_any(
    session: RouterSession, received: ReceivedCommand, keys: tuple[bytes, ...]
) -> Generator[None, None, bool]:
    """Try the keys of the authorization's algorithm: no other can have made it.

    If they are fewer than `FEWEST_CHECKS`, checks with a dummy key follow before it is refused.
    """
    checks = 0
    for der in keys:
        key = _key(der)
        if session.may_have_made(key, received):
            if checks:
                yield
            checks += 1
            if session.verifies(received, key):
                return True
    yield from _pretend_checks(session, received, FEWEST_CHECKS - checks, pause_first=checks > 0)
    return False


def _key(der: bytes) -> AuthPublicKey:
    return auth_key_from_der(der)
