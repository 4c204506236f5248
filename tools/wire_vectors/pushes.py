"""Pushes as APNs received them: headers, JSON, JWT, and both layers of encryption."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from tocsin.protocol.addresses import Scheme
from tocsin.protocol.ntf.pushes import (
    PADDED_PUSH_BYTES,
    CheckMessagesPush,
    MessagePush,
    Push,
    PushedNotification,
    VerificationPush,
    notification_list_text,
    parse_notification_list,
    parse_push_json,
    push_json,
    seal_code,
    seal_notifications,
    unseal_code,
    unseal_notifications,
)
from tocsin.push.apns.request import ADDED, PATH, own_headers, shared_headers
from tocsin.push.http2.frames import MAX_HEADER_LIST_BYTES, RequestBlocks
from tocsin.push.http2.hpack import Decoder, Header
from tocsin.push.provider import PushRequest, Urgency
from tools.wire_vectors.comparison import Mismatch, holds, same
from tools.wire_vectors.deliveries import agreed_key, check_meta
from tools.wire_vectors.files import BadVector, Fields, Vector

_BEARER: Final = "bearer "
_TOPIC: Final = b"chat.simplex.app"


def check_push(vector: Vector) -> None:
    http = vector.fields.object("http")
    body = http.text("body").encode()
    push = parse_push_json(body)
    same("the JSON body", push_json(push), body)
    headers = _headers(http)
    _check_headers(headers, push, body)
    if "jwt" in vector.fields:
        _check_jwt(vector.fields.object("jwt"), headers["authorization"])
    if "decrypted" in vector.fields:
        matches = vector.fields.object("matches") if vector.fields.has("matches") else None
        _check_decrypted(push, vector.fields.object("decrypted"), matches)
    else:
        holds("an encrypted push without its plain text", isinstance(push, CheckMessagesPush))


def _headers(http: Fields) -> dict[str, str]:
    """In the order of the wire."""
    headers: dict[str, str] = {}
    for pair in http.items("headers"):
        match pair:
            case [str(name), str(value)] if name not in headers:
                headers[name] = value
            case _:
                raise BadVector(f"{http.where}.headers is not a list of different headers")
    return headers


def _check_headers(headers: dict[str, str], push: Push, body: bytes) -> None:
    """ntf.md 3.3: our request, with the values of this one, begins with the same headers in the same order."""
    path = headers.get(":path", "").encode()
    holds("the path is not that of a device", path.startswith(PATH))
    holds("the authorization is no bearer token", headers.get("authorization", "").startswith(_BEARER))
    urgency = Urgency.ALERT if isinstance(push, MessagePush) else Urgency.BACKGROUND
    ours = headers_sent(
        PushRequest(path.removeprefix(PATH), body, urgency, push_id="", expires_at=0),
        authority=headers.get(":authority", "").encode(),
        topic=_TOPIC,
        authorization=headers["authorization"].encode(),
    )
    same(
        "the headers",
        [(name.decode(), value.decode()) for name, value, _ in ours if name not in ADDED],
        list(headers.items()),
    )


def headers_sent(
    push: PushRequest, *, authority: bytes, topic: bytes, authorization: bytes | None
) -> list[Header]:
    """The headers of a push on a new connection, as its server reads them."""
    shared = shared_headers(push.urgency, authority=authority, topic=topic, authorization=authorization)
    block = RequestBlocks().encode_request(shared, PATH + push.device_token, own_headers(push))
    return Decoder(MAX_HEADER_LIST_BYTES).decode(block)


def _check_jwt(jwt: Fields, authorization: str) -> None:
    """The reference signs with ECDSA in DER form, not in the fixed-size form of JOSE."""
    for part in ("header", "claims"):
        same(f"the JWT {part} written again", _compact(json.loads(jwt.text(part))), jwt.text(part))
    same("the members of the JWT header", ["alg", "kid"], list(json.loads(jwt.text("header"))))
    same("the members of the JWT claims", ["iss", "iat"], list(json.loads(jwt.text("claims"))))
    signing_input = f"{_base64url(jwt.text('header').encode())}.{_base64url(jwt.text('claims').encode())}"
    same("the signing input", signing_input, jwt.text("signing_input"))
    signature = jwt.octets("signature")
    same("signature_form", "DER", jwt.text("signature_form"))
    same("signature_len", len(signature), jwt.integer("signature_len"))
    same("the bearer token", f"{_BEARER}{signing_input}.{_base64url(signature)}", authorization)
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), jwt.octets("public_key_p256"))
        key.verify(signature, signing_input.encode(), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError) as error:
        raise Mismatch("the signature of the JWT does not verify") from error


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _check_decrypted(push: Push, decrypted: Fields, matches: Fields | None) -> None:
    key = agreed_key(decrypted)
    same("padded_len", PADDED_PUSH_BYTES, decrypted.integer("padded_len"))
    if isinstance(push, CheckMessagesPush):
        raise Mismatch("a push that carries nothing was decrypted")
    same("the nonce", push.nonce, decrypted.octets("nonce"))
    same("ciphertext_len", len(push.sealed), decrypted.integer("ciphertext_len"))
    same("b64_len", len(base64.urlsafe_b64encode(push.sealed)), decrypted.integer("b64_len"))
    if isinstance(push, VerificationPush):
        same("the field", "verification", decrypted.text("field"))
        same("the code", unseal_code(key, push), decrypted.octets("code"))
        same("the push sealed again", seal_code(key, push.nonce, decrypted.octets("code")), push)
        return
    same("the field", "message", decrypted.text("field"))
    notifications = unseal_notifications(key, push)
    same("the list", notification_list_text(notifications), decrypted.text("text"))
    same("the list parsed", parse_notification_list(decrypted.text("text")), notifications)
    same("the push sealed again", seal_notifications(key, push.nonce, notifications), push)
    _check_items(notifications, decrypted.objects("items"), matches)


def _check_items(
    notifications: tuple[PushedNotification, ...], items: list[Fields], matches: Fields | None
) -> None:
    same("the number of notifications", len(notifications), len(items))
    found: list[tuple[bytes, int]] = []
    for notification, item in zip(notifications, items, strict=True):
        same("the router", notification.queue.router.text(Scheme.SMP), item.text("server"))
        same("the notifier id", notification.queue.notifier_id, item.octets("notifier_id"))
        same("the time", notification.received_at, item.integer("ntf_ts"))
        same("the nonce", notification.nonce, item.octets("nonce"))
        same("the sealed metadata", notification.sealed_meta, item.octets("enc_meta"))
        if item.has("queue_dh_priv"):
            key = agreed_key(item, "queue_dh_priv", "queue_srv_dh")
            found.append(check_meta(key, notification.nonce, notification.sealed_meta, item))
    if matches is not None:
        wanted = (matches.octets("msg_id"), matches.integer("msg_ts"))
        holds("the push is not about the delivered message", wanted in found)
