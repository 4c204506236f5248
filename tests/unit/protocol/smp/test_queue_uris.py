from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import KEY_HASH, B, E
from tests.strategies import queue_uris
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.smp.queue_modes import QueueMode
from tocsin.protocol.smp.queue_uris import QueueUri
from tocsin.wire.base64url import encode_base64url
from tocsin.wire.versions import VersionRange

HASH = encode_base64url(KEY_HASH)
DH = encode_base64url(B.der)
SENDER = b"\x01" * 24
SENDER_TEXT = encode_base64url(SENDER)
START = f"smp://{HASH}@smp.example.com"
ONE_HOST = RouterLocation(("smp.example.com",), "", KEY_HASH)
TWO_HOSTS = RouterLocation(("smp.example.com", "abc.onion"), "5223", KEY_HASH)


@given(queue_uris)
def test_every_uri_is_read_back(uri: QueueUri) -> None:
    assert QueueUri.parse(str(uri)) == uri


@given(st.text(max_size=80))
def test_any_text_is_refused_or_a_uri(text: str) -> None:
    for candidate in (text, f"{START}/{SENDER_TEXT}#/?{text}", f"{START}/{text}#/?v=1&dh={DH}"):
        try:
            uri = QueueUri.parse(candidate)
        except DecodeError:
            continue
        assert QueueUri.parse(str(uri)) == uri


@pytest.mark.parametrize(
    ("uri", "query"),
    [
        (QueueUri(ONE_HOST, SENDER, VersionRange(4, 4), B), "v=4&dh={dh}"),
        (QueueUri(ONE_HOST, SENDER, VersionRange(4, 4), B, QueueMode.MESSAGING), "v=4&dh={dh}&q=m"),
        (QueueUri(ONE_HOST, SENDER, VersionRange(1, 4), B, QueueMode.MESSAGING), "v=1-4&dh={dh}&q=m&k=s"),
        (QueueUri(ONE_HOST, SENDER, VersionRange(1, 4), B, QueueMode.CONTACT), "v=1-4&dh={dh}&q=c"),
    ],
)
def test_a_uri_is_written_as_the_reference_does(uri: QueueUri, query: str) -> None:
    quoted = DH.replace("=", "%3D")
    assert str(uri) == f"{START}/{SENDER_TEXT}#/?{query.format(dh=quoted)}"


def test_old_clients_find_more_hosts_in_a_parameter() -> None:
    old = str(QueueUri(TWO_HOSTS, SENDER, VersionRange(1, 4), B))
    new = str(QueueUri(TWO_HOSTS, SENDER, VersionRange(2, 4), B))
    assert old.startswith(f"{START}:5223/")
    assert old.endswith("&srv=abc.onion")
    assert new.startswith(f"{START},abc.onion:5223/")
    assert "srv=" not in new
    assert QueueUri.parse(old).location == QueueUri.parse(new).location == TWO_HOSTS


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("", None),
        ("&k=s", QueueMode.MESSAGING),
        ("&k=x", None),
        ("&q=m", QueueMode.MESSAGING),
        ("&q=c", QueueMode.CONTACT),
        ("&q=c&k=s", QueueMode.CONTACT),
    ],
)
def test_the_mode_has_a_new_and_an_old_spelling(query: str, mode: QueueMode | None) -> None:
    assert QueueUri.parse(f"{START}/{SENDER_TEXT}#/?v=1-4&dh={DH}{query}").mode is mode


@pytest.mark.parametrize("path", [f"/{SENDER_TEXT}", f"/{SENDER_TEXT}/", f"/{SENDER_TEXT}="])
def test_sender_ids_are_read_in_all_usual_forms(path: str) -> None:
    if path.endswith("="):
        path = "/" + encode_base64url(b"\x01" * 16)
        assert path.endswith("=")
    uri = QueueUri.parse(f"{START}{path}#/?v=4&dh={DH.rstrip('=')}")
    assert set(uri.sender_id) == {1}


GOOD = f"v=1-4&dh={DH}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a queue URI"),
        (START, "not a queue URI"),
        (f"{START}/{SENDER_TEXT}", "not a queue URI"),
        (f"{START}/{SENDER_TEXT}#/?", "not a queue URI"),
        (f"ntf://{HASH}@host/{SENDER_TEXT}#/?{GOOD}", "not a queue URI"),
        (f"{START}/{SENDER_TEXT}#/?{GOOD}&x=" + "y" * 5000, "not a queue URI"),
        (f"{START}/#/?{GOOD}", "the sender id of a queue URI"),
        (f"{START}/%25#/?{GOOD}", "the sender id of a queue URI"),
        (f"smp://AAAA@host/{SENDER_TEXT}#/?{GOOD}", "key hash of 3 bytes"),
        (f"smp://{HASH}@ho st/{SENDER_TEXT}#/?{GOOD}", "host"),
        (f"{START}/{SENDER_TEXT}#/?dh={DH}", "exactly one parameter v"),
        (f"{START}/{SENDER_TEXT}#/?v=1&v=2&dh={DH}", "exactly one parameter v"),
        (f"{START}/{SENDER_TEXT}#/?v=1", "exactly one parameter dh"),
        (f"{START}/{SENDER_TEXT}#/?v=&dh={DH}", "version"),
        (f"{START}/{SENDER_TEXT}#/?v=4-1&dh={DH}", "version"),
        (f"{START}/{SENDER_TEXT}#/?v=99999&dh={DH}", "version"),
        (f"{START}/{SENDER_TEXT}#/?v=٣&dh={DH}", "version"),
        (f"{START}/{SENDER_TEXT}#/?v=1-&dh={DH}", "version"),
        (f"{START}/{SENDER_TEXT}#/?v=1&dh=%25", "parameter dh of a queue URI"),
        (f"{START}/{SENDER_TEXT}#/?v=1&dh=AAAA", "parameter dh of a queue URI"),
        (f"{START}/{SENDER_TEXT}#/?v=1&dh={encode_base64url(E.public.der)}", "X25519 key is needed"),
        (f"{START}/{SENDER_TEXT}#/?v=1&dh={encode_base64url(B.der_prefix + bytes(32))}", "low order"),
        (f"{START}/{SENDER_TEXT}#/?{GOOD}&q=x", "queue mode 'x'"),
        (f"{START}/{SENDER_TEXT}#/?{GOOD}&q=m&q=c", "exactly one parameter q"),
        (f"{START}/{SENDER_TEXT}#/?{GOOD}&srv=a%20b", "host"),
        (f"{START}/{SENDER_TEXT}#/?{GOOD}" + "&a=b" * 20, "too many parameters"),
    ],
)
def test_a_bad_uri_is_refused_with_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(message)):
        QueueUri.parse(text)
