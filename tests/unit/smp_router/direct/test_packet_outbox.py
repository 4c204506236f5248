"""Which NTF routers clients may name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tocsin.errors import ConfigError
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.smp_router.direct.packet_outbox import AllowedNtfRouters

LISTED = RouterLocation(("ntf.example", "abc.onion"), "", bytes(32))
OTHER = RouterLocation(("other.example",), "5223", b"\x01" * 32)


@pytest.mark.parametrize(
    ("location", "allowed"),
    [
        (LISTED, True),
        (replace(LISTED, port="443"), True),
        (replace(LISTED, hosts=("abc.onion",)), True),
        (OTHER, True),
        (replace(LISTED, port="5223"), False),
        (replace(LISTED, hosts=("ntf.example", "10.0.0.1")), False),
        (replace(LISTED, key_hash=OTHER.key_hash), False),
        (replace(OTHER, hosts=LISTED.hosts), False),
    ],
)
def test_a_listed_router_may_be_named_by_some_of_its_hosts(location: RouterLocation, allowed: bool) -> None:
    listed = AllowedNtfRouters([each.text(Scheme.NTF) for each in (LISTED, OTHER)], public_only=False)
    assert listed.allow(location) is allowed


def test_any_may_be_named_if_none_are_listed() -> None:
    assert AllowedNtfRouters((), public_only=False).allow(OTHER)


def test_what_is_no_address_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="direct_ntf_routers"):
        AllowedNtfRouters(["ntf://nobody@nowhere"], public_only=False)
