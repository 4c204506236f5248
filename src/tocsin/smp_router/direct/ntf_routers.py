"""NSRV and NSSUB: NTF routers that say who they are, and get the notifications of all their queues.

An NTF router is a service of the role of notifiers whose certificate is that of its address. So the queues that it
subscribed to as a service are its queues here, and the other way round.
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from typing import Final

from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.direct.smp_commands import RegisterNtfRouter, SubscribeNtfRouter
from tocsin.protocol.direct.smp_responses import NtfRouterRegistered, NtfRouterSubscribed
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.session.peers import Peer, ServiceQueues
from tocsin.smp_router.session.requests import SmpCommandTable, SmpRequest, SmpState, find_or_add_service
from tocsin.smp_router.store.interface import NtfRouterRecord

CLOCK_DIFFERENCE: Final = 86_400
"""In seconds. A key issued further in the future could not be replaced until then."""


class NtfRouterCommands:
    """NSRV and NSSUB."""

    def __init__(self, state: SmpState, own_identity: bytes) -> None:
        """`own_identity` is the fingerprint of this SMP router's certificate."""
        self._state = state
        self._own_identity = own_identity

    def add_to(self, table: SmpCommandTable) -> None:
        table.add(RegisterNtfRouter, self.register)
        table.add(SubscribeNtfRouter, self.subscribe)

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
        service_id = find_or_add_service(state, ServiceRole.NOTIFIER, identity, credentials.certificates)
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


def _may_speak_for(peer: Peer, service_id: bytes | None) -> bool:
    """A connection belongs to one NTF router, and to no service as well."""
    return peer.session.service is None and peer.ntf_router_id in (None, service_id)


def _is_outdated(credentials: NtfRouterCredentials, record: NtfRouterRecord) -> bool:
    """The key differs from the known one and is not newer: it may be a key that was replaced."""
    if record.auth_key is None:
        return False
    is_known = hmac.compare_digest(credentials.auth_key.der, record.auth_key)
    return not is_known and credentials.issued_at <= record.issued_at


def _replaces(credentials: NtfRouterCredentials, record: NtfRouterRecord) -> bool:
    """The credentials differ from the record and are newer."""
    if record.auth_key is None:
        return True
    same = credentials.auth_key.der == record.auth_key and credentials.location == record.location
    return not same and credentials.issued_at > record.issued_at
