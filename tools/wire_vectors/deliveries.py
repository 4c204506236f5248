"""Checks of encrypted contents: the bodies of MSG and the metadata of NMSG."""

from __future__ import annotations

from tocsin.crypto.boxes import BoxKey, box_key
from tocsin.crypto.keys import X25519PrivateKey, dh_key_from_der
from tocsin.protocol.messages import Response
from tocsin.protocol.smp.delivered_messages import (
    PADDED_MESSAGE_BYTES,
    PADDED_META_BYTES,
    Delivered,
    DeliveredMessage,
    NotificationMeta,
    decode_delivered,
    seal_delivered,
    seal_meta,
    unseal_delivered,
    unseal_meta,
)
from tocsin.protocol.smp.responses import MessageReceived, NotificationReceived
from tools.wire_vectors.comparison import Mismatch, same
from tools.wire_vectors.files import Fields


def agreed_key(fields: Fields, private: str = "dh_priv", public: str = "srv_dh") -> BoxKey:
    """The box key of a recorded key agreement."""
    secret = X25519PrivateKey(fields.octets(private)).agree(dh_key_from_der(fields.octets(public)))
    same(f"{fields.where}.secret", secret, fields.octets("secret"))
    return box_key(secret)


def check_delivery(response: Response, decrypted: Fields, matches: Fields | None) -> None:
    """Decrypt, compare, encrypt again."""
    match response:
        case MessageReceived():
            message_id, sent_at = _check_message(response, decrypted)
        case NotificationReceived():
            message_id, sent_at = check_meta(
                agreed_key(decrypted), response.nonce, response.sealed_meta, decrypted
            )
            same("padded_len", PADDED_META_BYTES, decrypted.integer("padded_len"))
            same("the nonce", response.nonce, decrypted.octets("nonce"))
        case _:
            raise Mismatch(f"{response.tag.decode()} carries nothing to decrypt")
    if matches is not None:
        same("the message id", message_id, matches.octets("msg_id"))
        same("the time of the message", sent_at, matches.integer("msg_ts"))


def _check_message(response: MessageReceived, decrypted: Fields) -> tuple[bytes, int]:
    key = agreed_key(decrypted)
    same("the nonce", response.message_id, decrypted.octets("nonce"))
    same("padded_len", PADDED_MESSAGE_BYTES, decrypted.integer("padded_len"))
    delivered = unseal_delivered(key, response.message_id, response.sealed)
    same("the plain message", delivered.encode(), decrypted.octets("plain"))
    same("the decoded message", decode_delivered(decrypted.octets("plain")), delivered)
    _check_fields(delivered, decrypted.object("message"))
    same("the message sealed again", seal_delivered(key, response.message_id, delivered), response.sealed)
    return response.message_id, delivered.sent_at


def _check_fields(delivered: Delivered, message: Fields) -> None:
    is_message = isinstance(delivered, DeliveredMessage)
    same("whether it is a quota marker", not is_message, message.value("quota"))
    same("the time of the message", delivered.sent_at, message.integer("ts"))
    if isinstance(delivered, DeliveredMessage):
        flags = ("T" if delivered.flags.notify else "F") + delivered.flags.reserved.decode("latin-1")
        same("the flags", flags, message.text("flags"))
        same("the body", delivered.body, message.octets("body"))


def check_meta(key: BoxKey, nonce: bytes, sealed: bytes, recorded: Fields) -> tuple[bytes, int]:
    """The metadata of a notification, in NMSG or in a push."""
    meta = unseal_meta(key, nonce, sealed)
    same("the metadata", NotificationMeta.decode(recorded.octets("meta")), meta)
    same("the metadata's bytes", meta.encode(), recorded.octets("meta")[: len(meta.encode())])
    same("msg_id", meta.message_id, recorded.octets("msg_id"))
    same("msg_ts", meta.sent_at, recorded.integer("msg_ts"))
    if meta.encode() == recorded.octets("meta"):
        same("the metadata sealed again", seal_meta(key, nonce, meta), sealed)
    return meta.message_id, meta.sent_at
