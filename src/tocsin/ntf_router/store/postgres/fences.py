"""Leases of an instance in a fleet, as far as the store needs them: names, and fences that writes carry.

A write about an SMP router carries the fence of that router's lease, and the outcome of a push the fence of its token's
shard. The row of the lease is locked in the transaction of the write, so a lease is taken over before it or after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from tocsin.errors import StoreUnavailable
from tocsin.ntf_router.store.postgres.pools import Proxy
from tocsin.ntf_router.store.postgres.rows import identity_of
from tocsin.protocol.addresses import RouterLocation

SHARDS: Final = 64
"""Parts of all tokens, by the first byte of the token's id, which is random. Each part's pushes have one owner."""
ROUTERS: Final = "smp"
PUSHES: Final = "push"
CHORES: Final = "chores"
"""The kinds of leases. There is one lease of chores: what one instance should do for all."""

# The holder is compared too: a promoted standby may have lost the last fences, and would give them out once more.
_CHECK: Final = "SELECT true FROM fleet_leases WHERE name = $1 AND fence = $2 AND holder = $3 FOR SHARE"
_VALID: Final = """
    SELECT l.name FROM fleet_leases l
    JOIN unnest($1::text[], $2::bigint[]) AS ours (name, fence) ON l.name = ours.name AND l.fence = ours.fence
    WHERE l.holder = $3
    ORDER BY l.name FOR SHARE OF l
"""


class LeaseLost(StoreUnavailable):
    """This instance does not hold the lease that a write needs: another one goes on."""

    def __init__(self, name: str) -> None:
        super().__init__(f"this instance no longer holds the lease {name}: another instance goes on")


class HeldLeases(Protocol):
    """The leases of this instance."""

    @property
    def number(self) -> int | None:
        """The number of this instance."""

    def holds(self, name: str) -> bool:
        """Whether this process may do now what a lease allows."""

    def fence(self, name: str) -> int | None:
        """Return the fence for writes, None without the lease."""


def router_lease(router: RouterLocation) -> str:
    """Return the name of the lease of an SMP router, whichever hosts clients name."""
    return f"{ROUTERS} {identity_of(router).decode()}"


def shard_of(token_id: bytes) -> int:
    return token_id[0] % SHARDS if token_id else 0


SHARD_OF_TOKEN: Final = f"(get_byte(token_id, 0) % {SHARDS})"


def shard_lease(shard: int) -> str:
    return f"{PUSHES} {shard}"


def token_lease(token_id: bytes) -> str:
    """Return the name of the lease of a token's pushes."""
    return _SHARD_LEASES[shard_of(token_id)]


_SHARD_LEASES: Final = [shard_lease(shard) for shard in range(SHARDS)]


class Fences:
    """Checks leases in transactions of the store."""

    def __init__(self, leases: HeldLeases) -> None:
        self._leases = leases

    async def check_router(self, connection: Proxy, router: RouterLocation) -> None:
        """Lock the lease of an SMP router until the transaction ends. Raises LeaseLost if it is not ours."""
        lease = self.of_router(router)
        if not await connection.fetchval(_CHECK, *lease):
            raise LeaseLost(lease[0])

    def of_router(self, router: RouterLocation) -> tuple[str, int, int]:
        """Return name, fence and holder of an SMP router's lease, to be checked by the write. Raises LeaseLost."""
        name, number = router_lease(router), self._leases.number
        fence = self._leases.fence(name)
        if fence is None or number is None:
            raise LeaseLost(name)
        return name, fence, number

    def of_tokens(self, token_ids: Iterable[bytes]) -> tuple[list[str], list[int], int | None]:
        """Return names, fences and holder of the leases of these tokens' pushes, as far as they are ours."""
        names = sorted({token_lease(each) for each in token_ids})
        ours = {name: fence for name in names if (fence := self._leases.fence(name)) is not None}
        return list(ours), list(ours.values()), self._leases.number

    async def locked(self, connection: Proxy, token_ids: Iterable[bytes]) -> set[str]:
        """Lock the leases of these tokens' pushes, as far as they are ours. Returns their names."""
        arguments = self.of_tokens(token_ids)
        if not arguments[0]:
            return set()
        return {row["name"] for row in await connection.fetch(_VALID, *arguments)}

    def pushed_here(self, token_ids: Collection[bytes]) -> list[bytes]:
        """Return the tokens whose pushes are ours at this moment."""
        return [each for each in token_ids if self._leases.holds(token_lease(each))]

    @property
    def shards(self) -> list[int]:
        """The shards whose pushes are ours at this moment."""
        return [shard for shard, name in enumerate(_SHARD_LEASES) if self._leases.holds(name)]
