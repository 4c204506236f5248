"""Ending services that share the router's own certificate, so that each SMP router gets a certificate of its own."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.ntf_router.store.interface import NtfStore


@dataclass(slots=True)
class SharedServices:
    """SMP routers that were found."""

    moved: int = 0
    queues: int = 0
    """Queues of the routers that move."""
    direct: int = 0
    separate: int = 0


async def end_shared_services(store: NtfStore, *, dry_run: bool) -> SharedServices:
    """Forget services of the shared certificate, unless queues of direct notifications need them. Raises StoreError.

    Their queues become INACTIVE, and the starting router subscribes to them with the new certificate.
    """
    found = SharedServices()
    for used in await store.used_routers():
        if await store.service_credentials(used.location) is not None:
            found.separate += 1
        elif used.direct_count:
            found.direct += 1
        elif used.service_id is not None or used.associated_count:
            found.moved += 1
            found.queues += used.associated_count
            if not dry_run:
                await store.forget_service(used.location)
    return found
