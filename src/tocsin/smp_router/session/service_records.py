"""Services as the store has them."""

from __future__ import annotations

from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.session.requests import SmpState
from tocsin.smp_router.store.records import ServiceRecord


def find_or_add_service(
    state: SmpState, role: ServiceRole, fingerprint: bytes, certificates: tuple[bytes, ...]
) -> bytes | None:
    """The id of the service with this fingerprint. None if it is known in another role: a certificate has one for ever.

    A new one is durable after the next commit.
    """
    known = state.store.service_by_fingerprint(fingerprint)
    if known is not None:
        return known.service_id if known.role is role else None
    service_id = state.randomness.new_id()
    state.counters.services_registered += 1
    state.store.add_service(ServiceRecord(service_id, role, certificates, fingerprint, state.clock.now()))
    return service_id
