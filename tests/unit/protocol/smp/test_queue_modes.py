from __future__ import annotations

import pytest
from hypothesis import given

from tests.appendix_a import B
from tests.strategies import queue_requests
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.protocol.smp.queue_modes import (
    LinkData,
    LinkRequest,
    NotifierIds,
    QueueMode,
    QueueRequest,
    SubscriptionMode,
    decode_letter,
)
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter


def encoded(request: QueueRequest) -> bytes:
    out = WireWriter()
    request.encode(out)
    return out.done()


@given(queue_requests)
def test_every_request_is_read_back(request: QueueRequest) -> None:
    assert QueueRequest.decode(WireReader(encoded(request))) == request


def test_only_contact_queues_bring_their_link_id() -> None:
    data = LinkData(b"f", b"u")
    messaging = QueueRequest(QueueMode.MESSAGING, LinkRequest(None, b"snd", data))
    contact = QueueRequest(QueueMode.CONTACT, LinkRequest(b"lnk", b"snd", data))
    assert encoded(messaging) == b"M1\x03snd\x00\x01f\x00\x01u"
    assert encoded(contact) == b"C1\x03lnk\x03snd\x00\x01f\x00\x01u"


@pytest.mark.parametrize("kind", [QueueMode, SubscriptionMode])
@pytest.mark.parametrize("letter", [b"", b"X", b"m", b"\x00"])
def test_unknown_letters_are_refused(kind: type[QueueMode] | type[SubscriptionMode], letter: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_letter(kind, WireReader(letter))


def test_the_notifier_id_is_not_shown() -> None:
    assert "n0tifier" not in repr(NotifierIds(b"n0tifier", B))


@pytest.mark.parametrize(
    ("mode", "link_id"), [(QueueMode.CONTACT, None), (QueueMode.MESSAGING, b"\x01" * 24)]
)
def test_a_link_id_where_it_does_not_belong_is_not_sent(mode: QueueMode, link_id: bytes | None) -> None:
    request = QueueRequest(mode, LinkRequest(link_id, b"\x02" * 24, LinkData(b"fixed", b"user")))
    with pytest.raises(LocalProtocolError, match="link id of contact queues"):
        request.encode(WireWriter())
