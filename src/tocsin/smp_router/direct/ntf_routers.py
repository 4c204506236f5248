"""NSRV, NSSUB and NRCV: NTF routers identify themselves, get the notifications of their queues, and acknowledge them.

An NTF router is a notifier service whose certificate is that of its address. So the queues that it subscribed to as a
service are its queues here, and the other way round.
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from typing import Final

from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.direct.smp_commands import (
    RegisterNtfRouter,
    SubscribeNtfRouter,
)
from tocsin.protocol.direct.smp_responses import (
    NotificationsAcknowledged,
    NtfRouterRegistered,
    NtfRouterSubscribed,
)
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications
from tocsin.smp_router.session.peers import Peer, ServiceQueues
from tocsin.smp_router.session.requests import SmpCommandTable, SmpRequest, SmpState
from tocsin.smp_router.session.service_records import find_or_store_service
from tocsin.smp_router.store.interface import NtfRouterRecord

CLOCK_DIFFERENCE: Final = 86_400
"""Tolerated seconds in the future: a key issued later than that could not be replaced until then."""


class NtfRouterCommands:
    """NSRV, NSSUB and NRCV."""

    def __init__(self, state: SmpState, own_identity: bytes) -> None:
        """`own_identity` is the fingerprint of this SMP router's certificate."""
        self._state = state
        self._own_identity = own_identity

    def add_to(self, table: SmpCommandTable) -> None:
        table.add(RegisterNtfRouter, self.register)
        table.add(SubscribeNtfRouter, self.subscribe)
        table.add(AcknowledgeNotifications, self.acknowledge)

    def register(self, request: SmpRequest[RegisterNtfRouter]) -> Response:
        """NSRV: one identity always gets the same id, whatever key it registers."""
        state, credentials = self._state, request.command.credentials
        now = state.clock.now()
        if not 0 <= credentials.issued_at <= now + CLOCK_DIFFERENCE:
            return Refused(ErrorCode.AUTH)
        if not credentials.proves_identity(self._own_identity, datetime.fromtimestamp(now, UTC)):
            return Refused(ErrorCode.AUTH)
        identity = credentials.location.key_hash
        known = state.store.service_by_fingerprint(identity)
        if not _may_speak_for(request.peer, None if known is None else known.service_id):
            return Refused(CommandFault.PROHIBITED)
        record = None if known is None else state.store.direct.ntf_router(known.service_id)
        if record is not None and _is_outdated(credentials, record):
            return Refused(ErrorCode.AUTH)
        service_id = find_or_store_service(state, ServiceRole.NOTIFIER, identity, credentials.certificates)
        if service_id is None:
            return Refused(ErrorCode.AUTH)
        if record is None or _replaces(credentials, record):
            registered = NtfRouterRecord(
                service_id, credentials.location, credentials.auth_key.der, credentials.issued_at
            )
            state.store.direct.set_ntf_router(registered)
            state.counters.ntf_routers_registered += record is None or record.auth_key is None
        request.peer.ntf_router_id = service_id
        return NtfRouterRegistered(service_id)

    def subscribe(self, request: SmpRequest[SubscribeNtfRouter]) -> Response:
        """NSSUB: subscribe to everything that is associated with it. The connection that had it before gets ENDS."""
        state, peer, service_id = self._state, request.peer, request.entity_id
        if not _may_speak_for(peer, service_id):
            return Refused(CommandFault.PROHIBITED)
        peer.ntf_router_id = service_id
        state.counters.ntf_router_subscriptions += 1
        state.subscriptions.subscribe_service(peer, service_id)
        associated = state.store.associated(service_id, ServiceRole.NOTIFIER)
        peer.service_queues = ServiceQueues.of(associated)
        return NtfRouterSubscribed(associated.count, associated.ids_hash)

    @staticmethod
    def acknowledge(request: SmpRequest[AcknowledgeNotifications]) -> Response:
        """NRCV: the next pass forgets what the peer has stored. The count never goes back."""
        peer, count = request.peer, request.command.count
        if not peer.notifications_acknowledged <= count <= peer.notifications_sent:
            return Refused(CommandFault.PROHIBITED)
        peer.notifications_acknowledged = count
        return NotificationsAcknowledged(count)


def _may_speak_for(peer: Peer, service_id: bytes | None) -> bool:
    """Whether the connection may act for this NTF router. It belongs to one of them, or to a service."""
    return peer.session.service is None and peer.ntf_router_id in (None, service_id)


def _is_outdated(credentials: NtfRouterCredentials, record: NtfRouterRecord) -> bool:
    """Whether the key differs from the known one without being newer: it may have been replaced."""
    if record.auth_key is None:
        return False
    is_known = hmac.compare_digest(credentials.auth_key.der, record.auth_key)
    return not is_known and credentials.issued_at <= record.issued_at


def _replaces(credentials: NtfRouterCredentials, record: NtfRouterRecord) -> bool:
    """Whether the credentials differ from the record and are newer."""
    if record.auth_key is None:
        return True
    same = credentials.auth_key.der == record.auth_key and credentials.location == record.location
    return not same and credentials.issued_at > record.issued_at
