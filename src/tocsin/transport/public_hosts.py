"""Rules for dialing hosts that strangers name: only public ones, none in the operator's network.

The tables follow the IANA registries of special-purpose addresses, not the `ipaddress` module, whose answers differ
between versions of Python. What is not known to be public is not public.
"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

_LOCAL_NAMES: Final = ("localhost", ".localhost", ".local", ".internal", ".home.arpa")

_NOT_PUBLIC_IPV4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_PUBLIC_IPV4: Final = tuple(IPv4Network(text) for text in ("192.0.0.9/32", "192.0.0.10/32"))
"""Public parts of networks that are not."""

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All IPv6 addresses that IANA has given to anybody are here."""
_NOT_PUBLIC_IPV6: Final = tuple(
    IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_PUBLIC_IPV6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001:1::1/128",
        "2001:1::2/128",
        "2001:1::3/128",
        "2001:3::/32",
        "2001:4:112::/48",
        "2001:20::/28",
        "2001:30::/28",
    )
)
_EMBEDDING: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
)
"""Networks whose addresses stand for the IPv4 address in them, and the bits after it: mapped, NAT64, 6to4.

Other forms (IPv4-compatible, translated, Teredo, local NAT64) are no addresses of public routers.
"""


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
    if isinstance(address, IPv4Address):
        return _is_public_ipv4(address)
    address = IPv6Address(int(address))  # without a scope
    for network, bits_after in _EMBEDDING:
        if address in network:
            return _is_public_ipv4(IPv4Address(int(address) >> bits_after & 0xFFFFFFFF))
    if any(address in network for network in _PUBLIC_IPV6):
        return True
    return address in _GLOBAL_UNICAST and not any(address in network for network in _NOT_PUBLIC_IPV6)


def _is_public_ipv4(address: IPv4Address) -> bool:
    if any(address in network for network in _PUBLIC_IPV4):
        return True
    return not any(address in network for network in _NOT_PUBLIC_IPV4)
