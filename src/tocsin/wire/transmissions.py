"""One transmission: authorization, correlation id, entity id, command bytes (smp.md 5.1, ntf.md 1.5)."""

from __future__ import annotations

from typing import Final, NamedTuple

from tocsin.errors import DecodeError
from tocsin.wire.writer import short

SERVICE_SIGNATURE_BYTES: Final = 64


class TransmissionLayout(NamedTuple):
    """The optional fields that a protocol version puts on the wire."""

    session_id: bool
    """Every transmission carries the session id (SMP v6, NTF v1); later versions imply it."""
    service_signature: bool
    """An authorization is followed by `maybe` a service signature (SMP v16+)."""


class RawTransmission(NamedTuple):
    """A transmission split into its fields. The command is still bytes."""

    auth: bytes
    service_signature: bytes
    """Empty if absent."""
    session_id: bytes
    """Empty unless the layout includes it."""
    corr_id: bytes
    entity_id: bytes
    command: bytes
    signed_tail: bytes
    """The last part of the bytes that authorization covers. An implied session id goes in front of it."""

    def __repr__(self) -> str:
        """Omit the command, which may hold passwords and private keys."""
        return f"RawTransmission({len(self.command)} bytes of command)"


def split_transmission(data: bytes, layout: TransmissionLayout) -> RawTransmission:
    """Split a transmission. Raises `DecodeError` if the fields before the command do not parse."""
    try:
        at = 1 + data[0]
        auth = data[1:at]
        service_signature = b""
        if auth and layout.service_signature:
            service_signature, at = _service_signature(data, at)
        tail_at = at
        session_id = b""
        if layout.session_id:
            start = at + 1
            at = start + data[at]
            session_id = data[start:at]
        start = at + 1
        at = start + data[at]
        corr_id = data[start:at]
        start = at + 1
        at = start + data[at]
    except IndexError:
        raise DecodeError("a transmission that ends inside a field") from None
    if at > len(data):
        raise DecodeError("a transmission that ends inside its entity id")
    return RawTransmission(
        auth, service_signature, session_id, corr_id, data[start:at], data[at:], data[tail_at:]
    )


def _service_signature(data: bytes, at: int) -> tuple[bytes, int]:
    if data[at] == 0x30:
        return b"", at + 1
    if data[at] != 0x31 or data[at + 1] != SERVICE_SIGNATURE_BYTES:
        raise DecodeError("a service signature must be absent or an Ed25519 signature")
    end = at + 2 + SERVICE_SIGNATURE_BYTES
    return data[at + 2 : end], end


def join_transmission(
    layout: TransmissionLayout, auth: bytes, service_signature: bytes, signed_tail: bytes
) -> bytes:
    """Build the wire bytes of a transmission from the result of `signed_tail`."""
    if not auth:
        return b"\0" + signed_tail
    if not layout.service_signature:
        return short(auth) + signed_tail
    if not service_signature:
        return short(auth) + b"0" + signed_tail
    return short(auth) + b"1" + short(service_signature) + signed_tail


def signed_tail(
    layout: TransmissionLayout, session_id: bytes, corr_id: bytes, entity_id: bytes, command: bytes
) -> bytes:
    """Build the part of the wire bytes that authorization covers."""
    tail = short(corr_id) + short(entity_id) + command
    return short(session_id) + tail if layout.session_id else tail
