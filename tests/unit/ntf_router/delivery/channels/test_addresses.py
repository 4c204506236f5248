"""Addresses of channels: what is understood, and what is refused with an example of the right form."""

from __future__ import annotations

import pytest

from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.addresses import (
    TlsPlace,
    check_address,
    kafka_place,
    scheme_of,
    storage_place,
    tls_place,
)

FINGERPRINT = "A" * 43 + "="


def test_each_channel_has_its_scheme_and_a_folder_has_none() -> None:
    assert scheme_of("/srv/handover") is None
    assert tls_place("tls://0.0.0.0:5226") == TlsPlace("0.0.0.0", 5226, None)  # noqa: S104 - only a text
    assert tls_place(f"tls://{FINGERPRINT}@[::1]:5226") == TlsPlace("::1", 5226, bytes(32))
    assert storage_place("s3://bucket/ntf-1/") == "s3://bucket/ntf-1"
    assert kafka_place("kafka://a:9092,b:9092/ntf-1") == ("a:9092,b:9092", "ntf-1")
    for address in ("tls://h:1", "s3://b/f", "gs://b/f", "kafka://h:1/n"):
        check_address(address)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ftp://host/x", "an address begins with tls://"),
        ("/folder", "an address begins with tls://"),
        ("tls://host", "write tls://host:port"),
        ("tls://a,b:1", "write tls://host:port"),
        ("tls://short@host:1", "write tls://host:port"),
        ("s3://bucket", "name a bucket and a folder"),
        ("kafka://host:1", "write kafka://broker:port"),
        ("kafka://host:1/a name", "write kafka://broker:port"),
    ],
)
def test_others_are_refused_with_the_right_form(address: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_address(address)
    assert says in str(caught.value)
