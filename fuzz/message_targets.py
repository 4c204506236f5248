"""Blocks, transmissions, commands, responses and error codes."""

from __future__ import annotations

from typing import Final, TypeVar

from fuzz.contract import attempt, choose, demand, demand_equal
from fuzz.fixed_parties import VERSIONS
from tocsin.errors import DecodeError
from tocsin.protocol.direct.smp_commands import AssociateQueue, CreateNotifyingQueue, RegisterNtfRouter
from tocsin.protocol.error_codes import (
    NOTICE_VERSION,
    Blocked,
    ProxyProtocol,
    RouterError,
    decode_error,
    decode_transport_fault,
    encode_error,
    encode_transport_fault,
)
from tocsin.protocol.messages import Message, MessageTable
from tocsin.protocol.ntf.responses import TokenChecked
from tocsin.protocol.ntf.subscription_commands import SubscribeToQueue
from tocsin.protocol.ntf.token_commands import RegisterToken, ReplaceToken
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.names import ResolveName
from tocsin.protocol.smp.proxy_commands import RequestProxySession
from tocsin.protocol.smp.responses import QueueDeleted, Subscribed
from tocsin.protocol.smp.versions import DELETED_EVENT_VERSION, SERVICE_CERTS_VERSION
from tocsin.wire.batches import ITEM_OVERHEAD, MAX_ITEMS, BatchFiller, join_batch, pack, split_batch
from tocsin.wire.padding import FILLER, pad, unpad
from tocsin.wire.reader import WireReader
from tocsin.wire.transmissions import (
    TransmissionLayout,
    join_transmission,
    signed_tail,
    split_transmission,
)

M = TypeVar("M", bound=Message)

LAYOUTS: Final = (
    TransmissionLayout(session_id=True, service_signature=False),
    TransmissionLayout(session_id=False, service_signature=False),
    TransmissionLayout(session_id=False, service_signature=True),
)
"""SMP v6 and NTF v1; SMP v7 to v15 and NTF v2 on; SMP v16 on."""

SMALL_BUDGET: Final = 96
"""A batch budget so small that a short input already fills several blocks."""

# Other texts of the same value are read: IPv6 hosts, JSON notices, old words. These are compared by value only.
SEVERAL_SPELLINGS: Final = (
    Refused,
    RequestProxySession,
    SubscribeToQueue,
    RegisterNtfRouter,
    AssociateQueue,
    CreateNotifyingQueue,
    ResolveName,
)


def block(data: bytes) -> None:
    """A padded block and the batch inside."""
    content = attempt(lambda: unpad(data), DecodeError)
    if content is None:
        return
    padded = pad(content, len(data))
    demand_equal(unpad(padded), content, "padding keeps the content")
    demand_equal(len(padded), len(data), "padding keeps the size")
    if not data[2 + len(content) :].strip(FILLER):
        demand_equal(padded, data, "a block with the right filler has one form")
    items = attempt(lambda: split_batch(content), DecodeError)
    if items is None:
        return
    demand_equal(join_batch(items), content, "a batch has one form")
    _packing(items)


def _packing(items: list[bytes]) -> None:
    packing = pack(items, SMALL_BUDGET)
    placed = [index for run in packing.batches for index in range(len(items))[run]]
    demand_equal(sorted(placed + packing.too_large), list(range(len(items))), "every item is packed once")
    demand(placed == sorted(placed), "packing keeps the order")
    for run in packing.batches:
        _fits(items[run])
    filler = BatchFiller(SMALL_BUDGET)
    for item in items:
        if not filler.fits(item) and len(filler):
            _fits(filler.take())
        if filler.fits(item):
            filler.add(item)


def _fits(batch: list[bytes]) -> None:
    size = sum(len(item) + ITEM_OVERHEAD for item in batch)
    demand(0 < len(batch) <= MAX_ITEMS and size <= SMALL_BUDGET, "a batch is neither empty nor too large")


def transmission(data: bytes) -> None:
    """The fields before the command, in each layout."""
    layout, data = choose(data, LAYOUTS)
    raw = attempt(lambda: split_transmission(data, layout), DecodeError)
    if raw is None:
        return
    tail = signed_tail(layout, raw.session_id, raw.corr_id, raw.entity_id, raw.command)
    demand_equal(raw.signed_tail, tail, "the signed part is made of the fields")
    joined = join_transmission(layout, raw.auth, raw.service_signature, tail)
    demand_equal(joined, data, "a transmission has one form")


def command(data: bytes) -> None:
    """A command of any version of SMP or NTF."""
    (dialect, version), data = choose(data, VERSIONS)
    message(dialect.commands, data, version)


def response(data: bytes) -> None:
    """A response or event of any version of SMP or NTF."""
    (dialect, version), data = choose(data, VERSIONS)
    message(dialect.responses, data, version)


def message(table: MessageTable[M], data: bytes, version: int) -> M | None:
    decoded = attempt(lambda: table.decode(data, version), DecodeError)
    if decoded is None:
        return None
    encoded = decoded.encode(version)
    again = table.decode(encoded, version)
    demand_equal(again.encode(version), encoded, "what we write we read and write again the same")
    if not is_translated(decoded, version):
        demand_equal(again, decoded, "encode then decode gives the message back")
        if not has_several_spellings(decoded):
            demand_equal(encoded, data, "a message has one form")
    return decoded


def has_several_spellings(decoded: Message) -> bool:
    """Whether other bytes mean the same, as hosts in capitals and the port 443 in a Web Push endpoint do."""
    if isinstance(decoded, RegisterToken | ReplaceToken):
        return decoded.token.is_reference_web_push
    return isinstance(decoded, SEVERAL_SPELLINGS)


def is_translated(decoded: Message, version: int) -> bool:
    """Whether this version writes another message instead, because it does not know this one."""
    match decoded:
        case Subscribed():
            return version < SERVICE_CERTS_VERSION
        case QueueDeleted():
            return version < DELETED_EVENT_VERSION
        case TokenChecked(status):
            return status.reason is not None and version < INVALID_REASON_VERSION
        case Refused(error):
            return _is_blocked(error) and version < NOTICE_VERSION
        case _:
            return False


def _is_blocked(error: RouterError) -> bool:
    return _is_blocked(error.error) if isinstance(error, ProxyProtocol) else isinstance(error, Blocked)


def error_code(data: bytes) -> None:
    """The text after ERR, and the transport faults of handshakes."""
    (_, version), data = choose(data, VERSIONS)
    error = attempt(lambda: decode_error(WireReader(data)), DecodeError)
    if error is not None:
        encoded = encode_error(error, version)
        again = decode_error(WireReader(encoded))
        demand_equal(encode_error(again, version), encoded, "an error is written the same again")
        if not _is_blocked(error) or version >= NOTICE_VERSION:
            demand_equal(again, error, "encode then decode gives the error back")
    fault = attempt(lambda: decode_transport_fault(WireReader(data)), DecodeError)
    if fault is not None:
        encoded = encode_transport_fault(fault)
        demand(data.startswith(encoded), "a transport fault has one form")
        demand_equal(decode_transport_fault(WireReader(encoded)), fault, "a fault is read back")
