"""Addresses as people write them and as commands carry them; C3 to C5 of smp-tests.md, section 14."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import KEY_HASH
from tests.strategies import addresses, hosts, locations
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import (
    LEGACY_ONION_HOSTS,
    RouterAddress,
    RouterLocation,
    Scheme,
    is_onion,
    parse_host,
    parse_hosts_and_port,
)
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

HASH = "H5uLO4QIu8uoFtuKlwNYjWEzzYcZ1Ww7dbXr44KY3mA="
ONION = "a" * 56 + ".onion"


def location(*hosts: str, port: str = "") -> RouterLocation:
    return RouterLocation(hosts, port, KEY_HASH)


def test_the_address_is_that_of_appendix_a6() -> None:
    address = RouterAddress(Scheme.SMP, location("smp.example.com", "abc.onion", port="5223"))
    text = f"smp://{HASH}@smp.example.com,abc.onion:5223"
    assert str(address) == text
    assert RouterAddress.parse(text) == address


@given(addresses)
def test_every_address_is_read_back(address: RouterAddress) -> None:
    assert RouterAddress.parse(str(address)) == address


@given(locations)
def test_every_location_is_read_back(place: RouterLocation) -> None:
    out = WireWriter()
    place.encode(out)
    body = WireReader(out.done())
    assert RouterLocation.decode(body) == place
    body.expect_end()


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for candidate in (text, f"smp://{HASH}@{text}", f"smp://{HASH}:{text}@host", f"smp://{text}@host"):
        try:
            address = RouterAddress.parse(candidate)
        except DecodeError:
            continue
        assert RouterAddress.parse(str(address)) == address


@given(st.text(max_size=30))
def test_any_text_is_a_host_or_refused(text: str) -> None:
    try:
        host = parse_host(text)
    except DecodeError:
        return
    assert parse_host(host) == host


@given(st.binary(max_size=80))
def test_any_bytes_are_a_location_or_refused(data: bytes) -> None:
    try:
        RouterLocation.decode(WireReader(data))
    except DecodeError:
        return


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("smp.simplex.im", "smp.simplex.im"),
        ("localhost", "localhost"),
        ("bücher.example", "bücher.example"),
        (ONION, ONION),
        ("192.168.0.1", "192.168.0.1"),
        ("010.1.1.1", "10.1.1.1"),
        ("192.168.1", "192.168.1"),
        ("192.256.0.1", "192.256.0.1"),
        ("192.168.0.-1", "192.168.0.-1"),
        ("1922.168.0.1", "1922.168.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
    ],
)
def test_hosts_have_one_canonical_text(text: str, host: str) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "smp,simplex.im",
        "smp:simplex.im",
        "smp#simplex.im",
        "smp;simplex.im",
        "smp/simplex.im",
        "smp simplex.im",
        "smp\nsimplex.im",
        "smp\tsimplex.im",
        "smp\rsimplex.im",
        "a b.onion",
        "a\nb.onion",
        "ä.onion",
        "ABC.onion",
        ".onion",
        "a.b.onion",
        "192.168.0.0.1",
        "192.168.0.1x",
        "[]",
        "[::1",
        "::1]",
        "[1.2.3.4]",
        ":",
        ":::",
        "fe80::1%eth0",
        "1:2:3:4:5:6:7:8:9",
    ],
)
def test_other_texts_are_no_hosts(text: str) -> None:
    with pytest.raises(DecodeError, match="host"):
        parse_host(text)


def test_digits_of_other_scripts_are_not_those_of_an_address() -> None:
    assert parse_host("١٩٢.168.0.1") == "١٩٢.168.0.1"
    with pytest.raises(DecodeError, match="port"):
        parse_hosts_and_port("host:٥٢٢٣")


@given(hosts)
def test_onion_hosts_are_known_by_their_ending(host: str) -> None:
    assert is_onion(host) == host.endswith(".onion")


@pytest.mark.parametrize(
    ("text", "hosts", "port"),
    [
        ("a", ("a",), ""),
        ("a:1", ("a",), "1"),
        ("a,b:65535", ("a", "b"), "65535"),
        ("::1", ("::1",), ""),
        ("[::1]", ("::1",), ""),
        ("[::1]:443", ("::1",), "443"),
        ("[::1],a:443", ("::1", "a"), "443"),
        ("a,[::1]:443", ("a", "::1"), "443"),
    ],
)
def test_one_port_belongs_to_all_hosts(text: str, hosts: tuple[str, ...], port: str) -> None:
    assert parse_hosts_and_port(text) == (hosts, port)
    text_again = str(RouterAddress(Scheme.SMP, location(*hosts, port=port)))
    assert RouterAddress.parse(text_again).location == location(*hosts, port=port)


@pytest.mark.parametrize("text", ["a:", "a:0", "a:65536", "a:123456", "a:x", "a:-1", "[::1]:", "[::1]:x"])
def test_a_port_is_a_number_from_1_to_65535(text: str) -> None:
    with pytest.raises(DecodeError, match="port from 1 to 65535"):
        parse_hosts_and_port(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a router address"),
        ("smp", "not a router address"),
        ("smp://host", "not a router address"),
        (f"smp://{HASH}@", "not a router address"),
        (f"smp:{HASH}@host", "not a router address"),
        (f" smp://{HASH}@host", "not a router address"),
        (f"smp://{HASH}@" + "h" * 5000, "not a router address"),
        (f"http://{HASH}@host", "scheme 'http'"),
        (f"SMP://{HASH}@host", "not a router address"),
        ("smp://%%%@host", "key hash of a router address: not base64url"),
        ("smp://A@host", "key hash of a router address"),
        ("smp://AAAA@host", "key hash of 3 bytes"),
        (f"smp://{HASH}:@host", "password"),
        (f"smp://{HASH}:a b@host", "password"),
        (f"smp://{HASH}:a:b@host", "password"),
        (f"smp://{HASH}:a/b@host", "password"),
        (f"smp://{HASH}:a\x01b@host", "password"),
        (f"ntf://{HASH}:secret@host", "no password"),
        (f"smp://{HASH}@host,", "host ''"),
        (f"smp://{HASH}@host:0", "port"),
        (f"smp://{HASH}@[::1]x", "'[::1]x'"),
    ],
)
def test_a_bad_address_is_refused_with_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(message)):
        RouterAddress.parse(text)


@pytest.mark.parametrize("scheme", list(Scheme))
def test_an_empty_port_is_the_default_of_the_protocol(scheme: Scheme) -> None:
    default = {Scheme.SMP: 5223, Scheme.NTF: 443, Scheme.XFTP: 443}[scheme]
    assert RouterAddress(scheme, location("a")).port_number == default
    assert RouterAddress(scheme, location("a", port="77")).port_number == 77


@pytest.mark.parametrize("port", ["0", "65536", "x", "1 2", "1;2", "-1", "٣", "123456", "1\n"])
def test_a_port_in_a_command_is_one_that_can_be_dialled_or_empty(port: str) -> None:
    """It goes into the text of pushes, whose separators are space and semicolon."""
    data = WireWriter(b"\x01\x01a").short_text(port).short_bytes(KEY_HASH).done()
    with pytest.raises(DecodeError, match="port from 1 to 65535"):
        RouterLocation.decode(WireReader(data))


def test_hosts_that_are_too_long_together_are_refused_in_both_forms() -> None:
    hosts = [f"{number}{'x' * 200}" for number in range(11)]
    data = WireWriter()
    data.non_empty_list(hosts, data.short_text).short_text("").short_bytes(KEY_HASH)
    with pytest.raises(DecodeError, match="characters of hosts"):
        RouterLocation.decode(WireReader(data.done()))
    with pytest.raises(DecodeError, match="characters of hosts"):
        RouterAddress.parse(f"smp://{HASH}@{','.join(hosts)}")


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_hash_in_a_command_has_32_bytes(size: int) -> None:
    data = WireWriter(b"\x01\x01a").short_text("").short_bytes(bytes(size)).done()
    with pytest.raises(DecodeError, match=f"key hash of {size} bytes"):
        RouterLocation.decode(WireReader(data))


@pytest.mark.parametrize(("host", "onion"), LEGACY_ONION_HOSTS.items())
def test_preset_routers_named_by_one_host_get_their_onion(host: str, onion: str) -> None:
    assert location(host).with_legacy_onion() == location(host, onion)
    assert location(host, "other").with_legacy_onion() == location(host, "other")


def test_other_routers_keep_their_hosts() -> None:
    assert location("smp7.simplex.im").with_legacy_onion() == location("smp7.simplex.im")


def test_an_address_of_another_protocol_is_refused() -> None:
    address = RouterAddress(Scheme.SMP, location("a"))
    assert RouterAddress.of(str(address), Scheme.SMP) == address
    assert RouterAddress.of(address, Scheme.SMP) is address
    with pytest.raises(DecodeError, match="ntf address is expected"):
        RouterAddress.of(address, Scheme.NTF)


def test_an_address_has_a_short_name() -> None:
    assert RouterAddress(Scheme.SMP, location("a", "b")).name == "a"
    assert RouterAddress(Scheme.SMP, location("a", "b", port="77")).name == "a:77"


def test_the_password_is_not_shown() -> None:
    address = RouterAddress(Scheme.SMP, location("a"), "s3cret-pw")
    assert "s3cret-pw" in str(address)
    assert "s3cret-pw" not in repr(address)


CONTROLS: Final = [
    chr(number) for number in (*range(0x21), *range(0x7F, 0xA1), 0x200E, 0x2028, 0x202E, 0xFEFF)
]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: f"{ord(control):#x}")
@pytest.mark.parametrize("place", ["{}host.example", "ho{}st.example", "host.example{}", "{}"])
def test_no_host_that_a_stranger_names_has_a_control_character(control: str, place: str) -> None:
    """Hosts reach the log, and databases refuse NUL."""
    out = WireWriter()
    location(place.format(control)).encode(out)
    with pytest.raises(DecodeError, match="host"):
        RouterLocation.decode(WireReader(out.done()))


@pytest.mark.parametrize("control", ["\x1b", "\0", "\u2028"])
def test_an_address_in_an_old_store_can_be_read_although_it_has_one(control: str) -> None:
    assert RouterAddress.parse(f"smp://{HASH}@ho{control}st").location == location(f"ho{control}st")


@pytest.mark.parametrize(
    "host", ["bücher.example", "xn--bcher-kva.example", "a_b.example", "HOST", "a.b-c.9z"]
)
def test_names_that_people_use_are_hosts(host: str) -> None:
    assert parse_host(host) == host
