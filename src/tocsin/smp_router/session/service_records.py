"""Records of services: which certificate has which id and role (smp.md 4.4).

Anybody can shake hands as a service, with a new certificate each time. So the record of a service is kept in memory
until the first queue or notifier is associated with it, and only then stored for good. In memory there are at most
`MAX_UNSTORED`. The oldest is forgotten first; its certificate then gets another id, which is harmless, because nothing
is associated with the old one. When `MAX_STORED` are stored, no further certificate becomes a service.

A service whose certificate changes leaves an old record without queues, so that stored records would only grow. A
record without queues is removed when two passes of the timer in a row found it so, while nobody was connected as that
service. It keeps its id in memory as long as there is room: no log has two ids of one certificate for long.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import SmpRequest, SmpState
from tocsin.smp_router.store.records import ServiceRecord
from tocsin.transport.turns import in_slices

MAX_UNSTORED: Final = 4096
MAX_STORED: Final = 100_000


def find_service(
    state: SmpState, role: ServiceRole, fingerprint: bytes, certificates: tuple[bytes, ...]
) -> bytes | None:
    """Return the id of the service with this fingerprint, a new one if needed, which is not stored yet.

    Returns None if the certificate is known in another role, because its role never changes, and if there are too many.
    """
    unstored = state.unstored_services
    known = state.store.service_by_fingerprint(fingerprint) or unstored.get(fingerprint)
    if known is not None:
        return known.service_id if known.role is role else None
    if state.store.service_count() >= MAX_STORED:
        state.counters.services_refused += 1
        return None
    while len(unstored) >= MAX_UNSTORED:
        del unstored[next(iter(unstored))]
        state.counters.services_forgotten += 1
    service_id = state.randomness.new_id()
    unstored[fingerprint] = ServiceRecord(service_id, role, certificates, fingerprint, state.clock.now())
    return service_id


def find_or_store_service(
    state: SmpState, role: ServiceRole, fingerprint: bytes, certificates: tuple[bytes, ...]
) -> bytes | None:
    """Return the id of the service as `find_service` does; the next commit makes its record durable."""
    service_id = find_service(state, role, fingerprint, certificates)
    if service_id is not None:
        _store(state, ServiceRecord(service_id, role, certificates, fingerprint, state.clock.now()))
    return service_id


def store_service_of(state: SmpState, request: SmpRequest[Any]) -> bool:
    """Store the record of the session's service, if it has one, before a queue is associated with it.

    Returns False if its certificate has another id by now, because the record was forgotten since the handshake.
    """
    service = request.session.service
    if service is None:
        return True
    certificates = request.peer.connection.connection.peer_chain
    record = ServiceRecord(
        service.service_id, service.role, certificates, service.fingerprint, state.clock.now()
    )
    return _store(state, record)


class EmptyServices:
    """Removes stored services that have lost all their queues."""

    def __init__(self, state: SmpState) -> None:
        self._state = state
        self._found: frozenset[bytes] = frozenset()
        """Services that the last pass found without queues."""

    async def remove(self, connected: Collection[Peer]) -> None:
        """Make one pass, in slices."""
        store, found = self._state.store, set[bytes]()
        present = {peer.session.service.service_id for peer in connected if peer.session.service is not None}
        async for service in in_slices(store.services()):
            service_id = service.service_id
            if service_id in present or not self._is_empty(service_id):
                continue
            if service_id in self._found:
                store.remove_service(service_id)
                self._state.counters.services_removed += 1
                self._keep_id(service)
            else:
                found.add(service_id)
        self._found = frozenset(found)

    def _is_empty(self, service_id: bytes) -> bool:
        store = self._state.store
        return store.direct.ntf_router(service_id) is None and not any(
            store.associated(service_id, role).count for role in (ServiceRole.MESSAGING, ServiceRole.NOTIFIER)
        )

    def _keep_id(self, service: ServiceRecord) -> None:
        unstored = self._state.unstored_services
        if len(unstored) < MAX_UNSTORED:
            unstored.setdefault(service.fingerprint, service)


def _store(state: SmpState, record: ServiceRecord) -> bool:
    stored = state.store.service_by_fingerprint(record.fingerprint)
    if stored is None:
        state.unstored_services.pop(record.fingerprint, None)
        state.counters.services_registered += 1
        state.store.add_service(record)
        return True
    return stored.service_id == record.service_id
