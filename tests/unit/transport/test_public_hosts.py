"""Which hosts may be dialled that strangers name."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

import pytest

from tocsin.errors import ConnectFailed
from tocsin.transport.dialer import find_addresses
from tocsin.transport.public_hosts import is_public_address, is_public_host

PUBLIC = ["93.184.216.34", "2606:4700:4700::1111", "::ffff:93.184.216.34", "2002:5db8:d822::1"]
PRIVATE = [
    "0.0.0.0",  # noqa: S104 - only looked at
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%1",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "2002:7f00:1::1",
    "64:ff9b::a00:1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_one(address: str) -> None:
    assert is_public_address(address)
    assert is_public_host(address)


@pytest.mark.parametrize("address", PRIVATE)
async def test_an_address_inside_a_network_is_not_public(address: str) -> None:
    assert not is_public_address(address)
    assert not is_public_host(address)
    with pytest.raises(ConnectFailed, match="only addresses that are not public"):
        await find_addresses(address, 443, public_only=True)
    assert await find_addresses(address, 443, public_only=False)


@pytest.mark.parametrize(
    "name", ["localhost", "router", "a.localhost", "A.LOCAL.", "x.internal", "x.home.arpa"]
)
def test_a_name_of_a_network_is_not_public(name: str) -> None:
    assert not is_public_host(name)


@pytest.mark.parametrize("name", ["push.example", "localhost.example", "a.onion"])
def test_other_names_are_looked_at_when_they_are_resolved(name: str) -> None:
    assert is_public_host(name)


async def test_a_name_whose_addresses_are_all_private_is_not_found() -> None:
    with pytest.raises(ConnectFailed, match="only addresses that are not public"):
        await find_addresses("localhost", 443, public_only=True)


# The registries of IANA: iana-ipv4-special-registry and iana-ipv6-special-registry (2025), with "Globally Reachable",
# and what the registries of multicast and of deprecated addresses add. N/A counts as not reachable.
IPV4_REGISTRY: Final = {
    "0.0.0.0/8": False,
    "0.0.0.0/32": False,
    "10.0.0.0/8": False,
    "100.64.0.0/10": False,
    "127.0.0.0/8": False,
    "169.254.0.0/16": False,
    "172.16.0.0/12": False,
    "192.0.0.0/29": False,
    "192.0.0.8/32": False,
    "192.0.0.9/32": True,
    "192.0.0.10/32": True,
    "192.0.0.170/32": False,
    "192.0.0.171/32": False,
    "192.0.2.0/24": False,
    "192.31.196.0/24": True,
    "192.52.193.0/24": True,
    "192.88.99.0/24": False,
    "192.88.99.2/32": False,
    "192.168.0.0/16": False,
    "192.175.48.0/24": True,
    "198.18.0.0/15": False,
    "198.51.100.0/24": False,
    "203.0.113.0/24": False,
    "224.0.0.0/4": False,
    "240.0.0.0/4": False,
    "255.255.255.255/32": False,
    "1.1.1.0/24": True,
    "93.184.216.0/24": True,
    "223.255.255.0/24": True,
}
IPV6_REGISTRY: Final = {
    "::1/128": False,
    "::/128": False,
    "::/96": False,
    "::ffff:0:0:0/96": False,
    "64:ff9b:1::/48": False,
    "100::/64": False,
    "100:0:0:1::/64": False,
    "2001::/32": False,
    "2001:1::1/128": True,
    "2001:1::2/128": True,
    "2001:1::3/128": True,
    "2001:2::/48": False,
    "2001:3::/32": True,
    "2001:4:112::/48": True,
    "2001:10::/28": False,
    "2001:20::/28": True,
    "2001:30::/28": True,
    "2001:db8::/32": False,
    "2620:4f:8000::/48": True,
    "3fff::/20": False,
    "5f00::/16": False,
    "fc00::/7": False,
    "fe80::/10": False,
    "fec0::/10": False,
    "ff00::/8": False,
    "4000::/3": False,
    "2606:4700::/32": True,
    "2a00::/16": True,
}


def samples(network: IPv4Network | IPv6Network) -> set[IPv4Address | IPv6Address]:
    """The first, the last and two in between."""
    size = network.num_addresses
    return {network[0], network[size // 3], network[size // 2], network[size - 1]}


@pytest.mark.parametrize(("network", "public"), IPV4_REGISTRY.items())
def test_ipv4_networks_are_judged_as_in_the_registry(network: str, public: bool) -> None:
    for address in samples(IPv4Network(network)):
        assert is_public_address(str(address)) is public, address


@pytest.mark.parametrize(("network", "public"), IPV6_REGISTRY.items())
def test_ipv6_networks_are_judged_as_in_the_registry(network: str, public: bool) -> None:
    for address in samples(IPv6Network(network)):
        assert is_public_address(str(address)) is public, address


EMBEDDINGS: Final[dict[str, tuple[Callable[[int], int], bool]]] = {
    "mapped": (lambda ipv4: int(IPv6Address("::ffff:0:0")) | ipv4, True),
    "NAT64": (lambda ipv4: int(IPv6Address("64:ff9b::")) | ipv4, True),
    "6to4": (lambda ipv4: int(IPv6Address("2002::")) | ipv4 << 80 | 1, True),
    "compatible": (lambda ipv4: ipv4, False),
    "translated": (lambda ipv4: int(IPv6Address("::ffff:0:0:0")) | ipv4, False),
    "local NAT64": (lambda ipv4: int(IPv6Address("64:ff9b:1::")) | ipv4, False),
    "Teredo client": (lambda ipv4: int(IPv6Address("2001::")) | ipv4 ^ 0xFFFFFFFF, False),
    "Teredo server": (lambda ipv4: int(IPv6Address("2001::")) | ipv4 << 64, False),
}
"""IPv6 forms of IPv4 addresses, and whether a public one stays public in this form."""


@pytest.mark.parametrize("form", EMBEDDINGS)
@pytest.mark.parametrize(("network", "public"), IPV4_REGISTRY.items())
def test_no_ipv6_form_makes_a_private_address_public(network: str, public: bool, form: str) -> None:
    embed, stays = EMBEDDINGS[form]
    for address in samples(IPv4Network(network)):
        embedded = IPv6Address(embed(int(address)))
        assert is_public_address(str(embedded)) is (public and stays), embedded
        assert is_public_host(str(embedded)) is (public and stays)
