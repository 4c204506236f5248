"""Which hosts may be dialled that strangers name."""

from __future__ import annotations

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
