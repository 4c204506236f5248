"""Which NTF routers clients may name."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.errors import ConfigError, DecodeError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme


class AllowedNtfRouters:
    """Any, if none are listed."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Raises ConfigError for what is no address."""
        try:
            self._locations = [RouterAddress.of(address, Scheme.NTF).location for address in addresses]
        except DecodeError as error:
            raise ConfigError(f"[TOCSIN] direct_ntf_routers: {error}") from error

    def allow(self, location: RouterLocation) -> bool:
        """One with the same identity and port, at some of the same hosts."""
        return not self._locations or any(_is_at(location, listed) for listed in self._locations)


def _is_at(location: RouterLocation, listed: RouterLocation) -> bool:
    return (
        location.key_hash == listed.key_hash
        and location.port_number(Scheme.NTF) == listed.port_number(Scheme.NTF)
        and set(location.hosts) <= set(listed.hosts)
    )
