"""The seeds of every target: recorded traffic, messages of our own encoders, and inputs that once were findings."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from fuzz import file_samples, samples
from fuzz import fixed_parties as fixed
from fuzz.agent_targets import RECIPIENT, SENDER
from fuzz.certificate_targets import CHAINS, KEYS, chain_bytes
from fuzz.contract import attempt, chosen
from fuzz.file_targets import BETWEEN_FILES, LINES, STORES
from fuzz.fixed_parties import NONCE
from fuzz.handshake_targets import AWAITING, HELLOS, PARTIES
from fuzz.header_targets import BLOCKS
from fuzz.http_targets import HTTP
from fuzz.message_targets import LAYOUTS
from fuzz.recordings import VECTORS, Recorded, recorded
from fuzz.router_targets import written_part
from fuzz.sealed_targets import DEVICE, ENVELOPES, EPHEMERAL, SEALED
from fuzz.session_targets import SETTINGS, SHAPES, Setting
from fuzz.text_targets import ADDRESSES, NAMES, PUSHES, STORED_TEXTS
from tocsin.crypto.signed_keys import SignedKey
from tocsin.crypto.web_push import seal_web_push
from tocsin.errors import DecodeError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.agent.agent_messages import encode_agent_message
from tocsin.protocol.agent.queue_envelopes import seal_for_queue
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import TransportFault, encode_error
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.pushes import notification_list_text, push_json
from tocsin.protocol.ntf.statuses import subscription_status_text
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.web_push_contents import web_push_content
from tocsin.protocol.smp import hellos as smp
from tocsin.protocol.smp.dialect import SMP
from tocsin.push.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FrameType,
    Http2ErrorCode,
    encode_frame,
    encode_goaway,
    encode_settings,
    encode_window_update,
)
from tocsin.push.http2.frames import Setting as Http2Setting
from tocsin.push.http2.hpack import Encoder, encode_integer
from tocsin.wire.batches import join_batch, split_batch
from tocsin.wire.padding import pad
from tocsin.wire.transmissions import join_transmission, signed_tail, split_transmission
from tocsin.wire.writer import WireWriter

REGRESSIONS: Final = Path(__file__).resolve().parent / "regressions"

_HELLOS_OF_PLACE: Final = {"server_hello": (0, 3), "client_hello": (1, 4), "service_response": (2, 2)}
"""For each kind of hello: its place in HELLOS for SMP and for NTF."""


class Seed(NamedTuple):
    target: str
    data: bytes


def seeds(vectors: Path = VECTORS) -> dict[str, list[bytes]]:
    """Seeds by target, each once, in a fixed order. Raises `RecordingsMissing`."""
    found: defaultdict[str, dict[bytes, None]] = defaultdict(dict)
    for target, data in (*_from_recordings(recorded(vectors)), *_from_samples()):
        found[target][data] = None
    return {target: list(inputs) for target, inputs in found.items()}


def regressions(target: str, folder: Path = REGRESSIONS) -> list[Path]:
    """Inputs that were findings once, and must never be again."""
    return sorted(path for path in (folder / target).glob("*") if path.is_file())


def regression_path(target: str, data: bytes, folder: Path = REGRESSIONS) -> Path:
    return folder / target.replace(":", ".") / hashlib.sha256(data).hexdigest()[:16]


def _from_recordings(pieces: list[Recorded]) -> Iterator[Seed]:
    for piece in pieces:
        if piece.place in _HELLOS_OF_PLACE:
            yield from _recorded_hello(piece)
        elif piece.place == "plain":
            yield Seed("delivered_message", chosen(SEALED, SEALED[0], piece.data))
        elif piece.place == "meta":
            yield Seed("delivered_message", chosen(SEALED, SEALED[1], piece.data))
        elif piece.place == "body":
            yield Seed("push", chosen(PUSHES, PUSHES[0], piece.data))
        elif piece.place == "text":
            yield Seed("push", chosen(PUSHES, PUSHES[1], piece.data))
        elif piece.dialect is not None:
            yield from _recorded_content(piece.dialect, piece)


def _recorded_hello(piece: Recorded) -> Iterator[Seed]:
    index = _HELLOS_OF_PLACE[piece.place][piece.dialect is NTF]
    yield Seed("hello", bytes((index,)) + piece.data)
    if piece.dialect is SMP and piece.place == "server_hello":
        key = smp.RouterHello.decode(piece.data).router_key
        if key is not None:
            yield from _chain_seeds(key.certificates)
            yield Seed("key", chosen(KEYS, KEYS[0], key.signed_key.der))


def _recorded_content(dialect: Dialect, piece: Recorded) -> Iterator[Seed]:
    session = "router_session" if piece.from_client else "client_session"
    setting = Setting(dialect, piece.version)
    yield Seed(session, chosen(SETTINGS, setting, chosen(SHAPES, SHAPES[0], piece.data)))
    yield Seed("block", pad(piece.data, len(piece.data) + 4))
    batched = piece.version >= dialect.batches_from
    items = attempt(lambda: split_batch(piece.data), DecodeError) if batched else [piece.data]
    layout = dialect.layout(piece.version)
    for item in items or ():
        yield Seed("transmission", chosen(LAYOUTS, layout, item))
        yield Seed(session, chosen(SETTINGS, setting, chosen(SHAPES, SHAPES[1], item)))
        raw = attempt(partial(split_transmission, item, layout), DecodeError)
        if raw is not None:
            table = "command" if piece.from_client else "response"
            yield Seed(table, chosen(fixed.VERSIONS, (dialect, piece.version), raw.command))


def _from_samples() -> Iterator[Seed]:
    for dialect, version in fixed.VERSIONS:
        commands, responses = samples.MESSAGES[dialect.alpn]
        yield from _messages(dialect, version, commands, "command", "router_session")
        yield from _messages(dialect, version, responses, "response", "client_session")
    for error in samples.ERRORS:
        version = SMP.supported.highest
        yield Seed("error_code", chosen(fixed.VERSIONS, (SMP, version), encode_error(error, version)))
    yield from (Seed("error_code", b"\0" + fault.value.encode()) for fault in TransportFault)
    yield from _session_seeds()
    yield from _handshakes()
    yield from _texts()
    yield from _sealed()
    yield from _agent_messages()
    yield from _certificates()
    yield from _answers_of_services()
    yield from _header_blocks()
    yield from _files()
    yield from _whole_routers()


def _messages(
    dialect: Dialect, version: int, messages: tuple[Command | Response, ...], table: str, session: str
) -> Iterator[Seed]:
    layout = dialect.layout(version)
    for message in messages:
        wire = message.encode(version)
        yield Seed(table, chosen(fixed.VERSIONS, (dialect, version), wire))
        tail = signed_tail(layout, fixed.SESSION_ID, samples.ID, samples.ID, wire)
        item = join_transmission(layout, b"", b"", tail)
        setting = Setting(dialect, version)
        yield Seed(session, chosen(SETTINGS, setting, chosen(SHAPES, SHAPES[1], item)))
    yield Seed("transmission", chosen(LAYOUTS, layout, join_transmission(layout, bytes(64), bytes(64), tail)))
    yield Seed("block", pad(join_batch([wire, b"", wire]), 4 * len(wire) + 16))


def _session_seeds() -> Iterator[Seed]:
    """Every setting with authorized commands, with and without a service's signature, and with a whole batch."""
    for setting in SETTINGS:
        layout = setting.dialect.layout(setting.version)
        for wire in (b"PING", b"SUB", b"NSUB", b"NSUBS", b"TCHK"):
            tail = signed_tail(layout, fixed.SESSION_ID, samples.ID, samples.ID, wire)
            items = [
                join_transmission(layout, bytes(size), signature, tail)
                for size, signature in ((0, b""), (64, b""), (64, bytes(64)), (80, b""), (114, b""))
            ]
            for item in items:
                yield Seed("router_session", chosen(SETTINGS, setting, chosen(SHAPES, SHAPES[1], item)))
            batch = join_batch(items)
            yield Seed("router_session", chosen(SETTINGS, setting, chosen(SHAPES, SHAPES[0], batch)))
        for session in ("router_session", "client_session"):
            raw = pad(join_batch([b"\0\0\0PONG", b"\0\0\0OK"]), 64)
            yield Seed(session, chosen(SETTINGS, setting, chosen(SHAPES, SHAPES[2], raw)))


def _handshakes() -> Iterator[Seed]:
    smp_hellos = [router.hello() for router in fixed.SMP_ROUTERS]
    ntf_hellos = [router.hello() for router in fixed.NTF_ROUTERS]
    for smp_client in fixed.SMP_CLIENTS:
        for content in smp_hellos:
            yield Seed("handshake", chosen(PARTIES, smp_client, content))
            answer = smp_client.answer(content)[0]
            yield Seed("hello", chosen(HELLOS, HELLOS[1], answer))
            for smp_router in fixed.SMP_ROUTERS:
                yield Seed("handshake", chosen(PARTIES, smp_router, answer))
    for content in ntf_hellos:
        yield Seed("handshake", chosen(PARTIES, fixed.NTF_CLIENT, content))
        answer = fixed.NTF_CLIENT.answer(content)[0]
        yield Seed("hello", chosen(HELLOS, HELLOS[4], answer))
        for ntf_router in fixed.NTF_ROUTERS:
            yield Seed("handshake", chosen(PARTIES, ntf_router, answer))
    yield from (Seed("hello", chosen(HELLOS, HELLOS[0], content)) for content in smp_hellos)
    yield from (Seed("hello", chosen(HELLOS, HELLOS[3], content)) for content in ntf_hellos)
    faults = [smp.ServiceRejected(fault).encode() for fault in TransportFault]
    for content in (smp.ServiceAccepted(samples.ID).encode(), *faults):
        yield Seed("hello", chosen(HELLOS, HELLOS[2], content))
        yield Seed("handshake", chosen(PARTIES, AWAITING, content))


def _texts() -> Iterator[Seed]:
    for address in samples.ADDRESSES:
        yield Seed("address", chosen(ADDRESSES, ADDRESSES[0], str(address).encode()))
    for location in samples.LOCATIONS:
        yield Seed("address", chosen(ADDRESSES, ADDRESSES[1], _encoded(location)))
    for uri in samples.QUEUE_URIS:
        yield Seed("address", chosen(ADDRESSES, ADDRESSES[2], str(uri).encode()))
    for queue in samples.NOTIFIER_QUEUES:
        yield Seed("address", chosen(ADDRESSES, ADDRESSES[3], _encoded(queue)))
        yield Seed("address", chosen(ADDRESSES, ADDRESSES[3], queue.text().encode()))
    for push in samples.PUSHES:
        yield Seed("push", chosen(PUSHES, PUSHES[0], push_json(push)))
    for count in range(1, len(samples.NOTIFICATIONS)):
        text = notification_list_text(samples.NOTIFICATIONS[:count])
        yield Seed("push", chosen(PUSHES, PUSHES[1], text.encode()))
    yield from (Seed("queue_information", each.to_json()) for each in samples.QUEUE_INFORMATION)
    yield from (Seed("name", chosen(NAMES, NAMES[0], name.encode())) for name in samples.NAMES)
    yield from (Seed("name", chosen(NAMES, NAMES[1], each)) for each in samples.NAME_RECORDS)
    texts = (
        [samples.TOKEN.text(), samples.WEB_PUSH_TOKEN.text(), samples.REFERENCE_WEB_PUSH_TOKEN.text()],
        [status.text(NTF.supported.highest) for status in samples.TOKEN_STATUSES],
        [subscription_status_text(status) for status in samples.SUBSCRIPTION_STATUSES],
    )
    for check, examples in zip(STORED_TEXTS, texts, strict=True):
        yield from (Seed("stored_text", chosen(STORED_TEXTS, check, text.encode())) for text in examples)


def _encoded(value: RouterLocation | NotifierQueue) -> bytes:
    out = WireWriter()
    value.encode(out)
    return out.done()


def _agent_messages() -> Iterator[Seed]:
    for message in samples.AGENT_MESSAGES:
        yield Seed("agent_message", encode_agent_message(message))
    envelope = seal_for_queue(b"hello", RECIPIENT.public, SENDER, NONCE)
    yield Seed("agent_message", envelope)


def _sealed() -> Iterator[Seed]:
    transmission = pad(join_batch([b"\0\0\0PING"]), 32)
    yield from (Seed("proxy_envelope", chosen(ENVELOPES, check, transmission)) for check in ENVELOPES[:2])
    envelope = samples.RELAY_ENVELOPE
    out = WireWriter().short_bytes(envelope.corr_id).u16(envelope.version)
    relay = out.short_bytes(envelope.client_key.der).raw(envelope.transmission).done()
    yield from (Seed("proxy_envelope", chosen(ENVELOPES, check, relay)) for check in ENVELOPES[2:])
    for message in samples.DELIVERED:
        yield Seed("delivered_message", chosen(SEALED, SEALED[0], message.encode()))
        yield Seed("delivered_message", chosen(SEALED, SEALED[0], pad(message.encode(), 64)))
    yield Seed("delivered_message", chosen(SEALED, SEALED[1], samples.META.encode()))
    yield Seed("delivered_message", chosen(SEALED, SEALED[2], b"block"))
    for push in samples.PUSHES:
        content = web_push_content(push)
        yield Seed("web_push", content)
        body = seal_web_push(content, DEVICE.receiver, EPHEMERAL.raw, NONCE[:16], padded_to=len(content) + 1)
        yield Seed("web_push", body)
    yield Seed("direct_packet", samples.PACKET)
    for statement in samples.STATEMENTS:
        yield Seed("direct_packet", bytes(64) + statement.encode())


def _certificates() -> Iterator[Seed]:
    yield from _chain_seeds(fixed.ROUTER.chain)
    yield from _chain_seeds(fixed.SERVICE.chain)
    for signer in (fixed.LEAF_KEY, fixed.ENTITY_KEY_448):
        signed = SignedKey.sign(fixed.ENTITY_DH_KEY.public, signer)
        yield Seed("key", chosen(KEYS, KEYS[0], signed.der))
    for private in (fixed.ENTITY_KEY, fixed.ENTITY_KEY_448, fixed.ENTITY_DH_KEY):
        yield Seed("key", chosen(KEYS, KEYS[1], private.public.der))
        yield Seed("key", chosen(KEYS, KEYS[2], private.der))


def _chain_seeds(chain: tuple[bytes, ...]) -> Iterator[Seed]:
    for length in range(1, len(chain) + 1):
        yield Seed("certificate_chain", chosen(CHAINS, CHAINS[0], chain_bytes(chain[:length])))
        yield Seed("certificate_chain", chosen(CHAINS, CHAINS[1], chain_bytes(chain[:length])))
    bodies = tuple(_to_be_signed(der) for der in chain)
    yield Seed("certificate_chain", chosen(CHAINS, CHAINS[2], chain_bytes(bodies)))
    yield from (Seed("certificate_chain", chosen(CHAINS, CHAINS[3], der)) for der in chain)


def _to_be_signed(der: bytes) -> bytes:
    """The first element inside a certificate; its length and the certificate's have two bytes (smp.md 2.2)."""
    body = der[4:] if der[1] == 0x82 else der[3:]
    size = int.from_bytes(body[2:4], "big") + 4 if body[1] == 0x82 else body[2] + 3
    return body[:size]


def _header_blocks() -> Iterator[Seed]:
    """Blocks of an answer with and without Huffman coding, with a new table size, and headers for our encoder."""
    encoder = Encoder()
    plain = encoder.encode(
        [(b":status", b"410", False), (b"apns-id", b"0123-ABCD", True), (b"age", b"7", False)]
    )
    coded = bytes.fromhex("4882640258 85aec3771a4b 5f8825a849e95ba97d7f")
    for block in (plain, coded, encode_integer(100, 5, 0x20) + coded, plain * 3, bytes.fromhex("0007")):
        yield from (
            Seed("header_block", chosen(BLOCKS, BLOCKS[0], bytes((size,)) + block)) for size in range(3)
        )
    for text in (b"a=b,:status=200\na=b,secret\n!!\na=b", b":path=/x\n!\n!!!\n:path=/x,age=1"):
        yield Seed("header_block", chosen(BLOCKS, BLOCKS[1], text))


def _answers_of_services() -> Iterator[Seed]:
    encoder = Encoder()
    head = encoder.encode([(b":status", b"410", False), (b"retry-after", b"7", False)])
    frames = [
        encode_settings({Http2Setting.MAX_CONCURRENT_STREAMS: 1, Http2Setting.INITIAL_WINDOW_SIZE: 4}),
        encode_frame(FrameType.HEADERS, END_HEADERS, 1, head),
        encode_frame(FrameType.DATA, END_STREAM, 1, b'{"reason":"Unregistered","timestamp":1794700000000}'),
        encode_frame(FrameType.HEADERS, 0, 3, head[:2]),
        encode_frame(FrameType.CONTINUATION, END_HEADERS, 3, head[2:]),
        encode_frame(FrameType.RST_STREAM, 0, 3, (7).to_bytes(4, "big")),
        encode_frame(FrameType.PING, 0, 0, bytes(8)),
        encode_window_update(0, 1000),
        encode_goaway(Http2ErrorCode.NO_ERROR),
    ]
    for size in range(4):
        for number in range(len(frames)):
            yield Seed("push_answer", chosen(HTTP, HTTP[0], bytes((size,)) + b"".join(frames[: number + 1])))
        yield from (Seed("push_answer", chosen(HTTP, HTTP[0], bytes((size,)) + frame)) for frame in frames)
    for text in (
        b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Slow\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.0 410 Gone\r\nConnection: close\r\n\r\n",
    ):
        yield Seed("push_answer", chosen(HTTP, HTTP[1], text))
    for status in range(10):
        for text in (
            b"60\n",
            b'\n{"reason":"BadDeviceToken"}',
            b'5\n{"reason":"ExpiredToken","timestamp":1e12}',
            b'\n{"error":{"details":[{"errorCode":"UNREGISTERED"},{"fieldViolations":[{"field":"message.token"}]}]}}',
            b'9\n{"error":{"details":[{"errorCode":"QUOTA_EXCEEDED"},{"violations":[{"subject":"device:1"}]}]}}',
            b'\n{"access_token":"ya29.a","expires_in":3600}',
        ):
            yield Seed("push_answer", chosen(HTTP, HTTP[2], bytes((status,)) + text))


def _files() -> Iterator[Seed]:
    for check, logs in zip(STORES, (file_samples.SMP_LOGS, file_samples.NTF_LOGS), strict=True):
        yield Seed("store_logs", chosen(STORES, check, BETWEEN_FILES.join(logs)))
        yield Seed("store_logs", chosen(STORES, check, logs[0]))
    yield Seed("exchanged_file", chosen(LINES, LINES[0], file_samples.EVENT))
    yield Seed("exchanged_file", chosen(LINES, LINES[1], file_samples.RETURNED))
    yield from (Seed("exchanged_file", chosen(LINES, LINES[2], text)) for text in file_samples.PLANS)
    yield from (Seed("settings", text) for text in file_samples.SETTINGS)


def _whole_routers() -> Iterator[Seed]:
    for target, messages, dialect in (
        ("smp_router", samples.SMP_COMMANDS, SMP),
        ("ntf_router", samples.NTF_COMMANDS, NTF),
    ):
        known = [each for each in messages if type(each) in dialect.commands.kinds]
        commands = [each.encode(dialect.supported.highest) for each in known]
        for command in commands:
            yield Seed(target, b"".join(written_part(entity, 1, command) for entity in range(5)))
        yield Seed(target, b"".join(written_part(2, 1, command) for command in commands)[:2000])
