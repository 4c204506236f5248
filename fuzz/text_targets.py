"""Texts from people and JSON: addresses, queue URIs, pushes, queue information, statuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fuzz.contract import attempt, choose, demand, demand_equal
from fuzz.fixed_parties import BOX_KEY, NONCE
from tocsin.errors import BadBox, DecodeError, LocalProtocolError
from tocsin.protocol.addresses import (
    MAX_ADDRESS_CHARACTERS,
    RouterAddress,
    RouterLocation,
    Scheme,
)
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.pushes import (
    MessagePush,
    VerificationPush,
    notification_list_text,
    parse_notification_list,
    parse_push_json,
    push_json,
    seal_notifications,
    unseal_code,
    unseal_notifications,
)
from tocsin.protocol.ntf.statuses import TokenStatus, parse_subscription_status, subscription_status_text
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.versions import SUPPORTED
from tocsin.protocol.smp.names import name_record, parse_name
from tocsin.protocol.smp.queue_information import QueueInformation
from tocsin.protocol.smp.queue_uris import MAX_URI_CHARACTERS, QueueUri
from tocsin.wire.reader import WireReader, as_text
from tocsin.wire.writer import WireWriter


def _text_of(data: bytes) -> str | None:
    return attempt(lambda: as_text(data), DecodeError)


def router_address(data: bytes) -> None:
    text = _text_of(data)
    address = None if text is None else attempt(lambda: RouterAddress.parse(text), DecodeError)
    if address is None:
        return
    demand(1 <= address.port_number <= 65535, "a parsed address can be dialled")
    demand(address.location.port.isascii(), "a port is written with ASCII digits")
    written = str(address)
    if len(written) <= MAX_ADDRESS_CHARACTERS:  # brackets and base64 padding may make it longer
        demand_equal(RouterAddress.parse(written), address, "an address is read back")
        demand_equal(str(RouterAddress.parse(written)), written, "the text we write is the canonical one")
    _binary(address.location)


def _binary(location: RouterLocation) -> None:
    out = WireWriter()
    try:
        location.encode(out)
    except LocalProtocolError:
        return  # more hosts, or a longer host, than the binary form can say
    decoded = attempt(lambda: RouterLocation.decode(WireReader(out.done())), DecodeError)
    if all(host.isprintable() and not set(host) & set("[]") for host in location.hosts):
        demand_equal(decoded, location, "the binary form is read back")
    else:  # old stores may have such a host
        demand(decoded is None, "a host with control characters or brackets is not received")


def binary_location(data: bytes) -> None:
    """The form in PRXY and SNEW. Its text is what pushes and stores keep."""
    location = attempt(lambda: RouterLocation.decode(WireReader(data)), DecodeError)
    if location is None:
        return
    _binary(location)
    demand(location.port.isascii(), "a port is written with ASCII digits")
    _location_text(location)
    _location_text(location.with_legacy_onion())


def _location_text(location: RouterLocation) -> None:
    parsed = RouterAddress.parse(location.text(Scheme.SMP))
    demand_equal(parsed.location, location, "the text of a location is read back")


def queue_uri(data: bytes) -> None:
    text = _text_of(data)
    uri = None if text is None else attempt(lambda: QueueUri.parse(text), DecodeError)
    if uri is None:
        return
    written = str(uri)
    if len(written) <= MAX_URI_CHARACTERS:
        demand_equal(QueueUri.parse(written), uri, "a queue URI is read back")
        demand_equal(str(QueueUri.parse(written)), written, "the URI we write is the canonical one")


def notifier_queue(data: bytes) -> None:
    """The wire form in SNEW, and the text form in pushes."""
    decoded = attempt(lambda: NotifierQueue.decode(WireReader(data)), DecodeError)
    if decoded is not None:
        out = WireWriter()
        decoded.encode(out)
        demand_equal(NotifierQueue.decode(WireReader(out.done())), decoded, "a queue is read back")
        _queue_text(decoded)
    text = _text_of(data)
    parsed = None if text is None else attempt(lambda: NotifierQueue.parse(text), DecodeError)
    if parsed is not None:
        demand_equal(NotifierQueue.parse(parsed.text()), parsed, "the text of a queue is read back")


def _queue_text(queue: NotifierQueue) -> None:
    """Pushes and stores keep the text."""
    demand_equal(NotifierQueue.parse(queue.text()), queue, "the text of a queue is read back")


ADDRESSES: Final[tuple[Callable[[bytes], None], ...]] = (
    router_address,
    binary_location,
    queue_uri,
    notifier_queue,
)


def address(data: bytes) -> None:
    """Router addresses, binary locations, queue URIs and notifier queues."""
    check, data = choose(data, ADDRESSES)
    check(data)


def push_payload(data: bytes) -> None:
    push = attempt(lambda: parse_push_json(data), DecodeError)
    if push is None:
        return
    demand_equal(parse_push_json(push_json(push)), push, "a push is read back")
    demand_equal(push_json(parse_push_json(push_json(push))), push_json(push), "our JSON is canonical")
    if isinstance(push, VerificationPush):
        attempt(lambda: unseal_code(BOX_KEY, push), BadBox, DecodeError)
    if isinstance(push, MessagePush):
        attempt(lambda: unseal_notifications(BOX_KEY, push), BadBox, DecodeError)


def notification_list(data: bytes) -> None:
    text = _text_of(data)
    notifications = None if text is None else attempt(lambda: parse_notification_list(text), DecodeError)
    if notifications is None:
        return
    if any(len(each.queue.router.text(Scheme.SMP)) > MAX_ADDRESS_CHARACTERS for each in notifications):
        return
    written = notification_list_text(notifications)
    demand_equal(parse_notification_list(written), notifications, "a list of notifications is read back")
    push = attempt(lambda: seal_notifications(BOX_KEY, NONCE, notifications), LocalProtocolError)
    if push is not None:
        opened = unseal_notifications(BOX_KEY, push)
        demand_equal(opened, notifications, "a sealed list is read back")


PUSHES: Final[tuple[Callable[[bytes], None], ...]] = (push_payload, notification_list)


def push(data: bytes) -> None:
    """The payload JSON of a push, and the list of notifications inside."""
    check, data = choose(data, PUSHES)
    check(data)


def queue_information(data: bytes) -> None:
    """The JSON of INFO."""
    information = attempt(lambda: QueueInformation.from_json(data), DecodeError)
    if information is None:
        return
    written = information.to_json()
    demand_equal(QueueInformation.from_json(written), information, "queue information is read back")
    demand_equal(QueueInformation.from_json(written).to_json(), written, "our JSON is canonical")


def domain_name(data: bytes) -> None:
    """The domain of RSLV."""
    parsed = attempt(lambda: parse_name(data), DecodeError)
    if parsed is not None:
        demand_equal(parsed.encode(), data.lower(), "a name is what was sent, in small letters")
        demand_equal(parse_name(parsed.encode()), parsed, "a name is read back")
        demand("/" not in parsed and "%" not in parsed, "a name is one part of a path")


def resolved_record(data: bytes) -> None:
    """The JSON of a resolver."""
    record = attempt(lambda: name_record(data), DecodeError)
    if record is not None:
        demand_equal(name_record(record), record, "our JSON is canonical")


NAMES: Final[tuple[Callable[[bytes], None], ...]] = (domain_name, resolved_record)


def name(data: bytes) -> None:
    """Domains that clients ask to resolve, and the records that resolvers answer with."""
    check, data = choose(data, NAMES)
    check(data)


def _device_token(text: str) -> None:
    token = attempt(lambda: DeviceToken.parse(text), DecodeError)
    if token is None:
        return
    if token.is_reference_web_push:  # people write it too, so it is read in other spellings
        demand_equal(
            DeviceToken.parse(token.text()), token, "the text of a device token means the same token"
        )
    else:
        demand_equal(token.text(), text, "a device token has one text")


def _token_status(text: str) -> None:
    status = attempt(lambda: TokenStatus.parse(text), DecodeError)
    if status is not None:
        demand_equal(status.text(SUPPORTED.highest), text, "a token status has one text")
        demand(text.startswith(status.text(SUPPORTED.lowest)), "older versions leave the reason out")


def _subscription_status(text: str) -> None:
    status = attempt(lambda: parse_subscription_status(text), DecodeError)
    if status is not None:
        demand_equal(subscription_status_text(status), text, "a subscription status has one text")


STORED_TEXTS: Final[tuple[Callable[[str], None], ...]] = (_device_token, _token_status, _subscription_status)


def stored_text(data: bytes) -> None:
    """The texts of device tokens and statuses, as stores keep them."""
    check, data = choose(data, STORED_TEXTS)
    text = _text_of(data)
    if text is not None:
        check(text)
