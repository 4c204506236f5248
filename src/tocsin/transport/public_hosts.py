"""Rules for dialing hosts that strangers name: only public ones, none in the operator's network."""

from __future__ import annotations

import ipaddress
from typing import Final

_LOCAL_NAMES: Final = ("localhost", ".localhost", ".local", ".internal", ".home.arpa")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public_host(host: str) -> bool:
    """Return whether the host is a public address, or a name, whose addresses are checked when it is resolved."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        name = host.lower().rstrip(".")
        return "." in name and not name.endswith(_LOCAL_NAMES)
    return is_public_address(host)


def is_public_address(text: str) -> bool:
    """Return whether the address is public, also if it is an IPv6 form of an IPv4 address."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and (inner := _inner_address(address)) is not None:
        address = inner
    return address.is_global and not address.is_multicast


def _inner_address(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
