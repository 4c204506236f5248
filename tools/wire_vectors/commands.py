"""The `command` objects of vectors and our message classes, in both directions.

A command object has the tag, then the parameters of its layout in order. We give the parameters the names of the
recordings; a recording that names them otherwise is compared by their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tocsin.crypto.keys import auth_key_from_der, dh_key_from_der, private_key_from_der
from tocsin.crypto.signed_keys import SignedKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.error_codes import decode_error, encode_error
from tocsin.protocol.messages import Message
from tocsin.protocol.ntf import responses as ntf_responses
from tocsin.protocol.ntf import subscription_commands, token_commands
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import TokenStatus, parse_subscription_status, subscription_status_text
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp import (
    names,
    notifier_commands,
    proxy_commands,
    recipient_commands,
    responses,
    sender_commands,
)
from tocsin.protocol.smp.queue_modes import (
    LinkData,
    LinkRequest,
    NotifierIds,
    NotifierKeys,
    QueueMode,
    QueueRequest,
    SubscriptionMode,
)
from tocsin.protocol.smp.sender_commands import MessageFlags
from tocsin.protocol.smp.versions import (
    NEW_NOTIFIER_CREDS_VERSION,
    SENDER_AUTH_KEY_VERSION,
    SERVICE_CERTS_VERSION,
    SERVICE_HASH_VERSION,
    SHORT_LINKS_VERSION,
)
from tocsin.wire.reader import WireReader
from tocsin.wire.versions import VersionRange
from tools.wire_vectors.comparison import Mismatch, same
from tools.wire_vectors.files import Fields, octets

M = TypeVar("M", bound=Message)
Parameters: TypeAlias = dict[str, Any]
"""By name; byte strings as bytes, objects as dicts."""


class Opaque(NamedTuple):
    """A long byte string that a recording may give by length and SHA-256 only."""

    content: bytes


class Conversion(NamedTuple):
    """How one message class is described, and built from its description."""

    describe: Callable[[Any, int], Parameters]
    build: Callable[[Parameters, int], Message]


def check_command(message: Message, version: int, recorded: Fields) -> Message:
    """Compare a decoded message with its recorded description; return the message built from the latter."""
    same("the tag", _wire_tag(message, version), recorded.text("tag"))
    given = {name: value for name, value in recorded.values.items() if name != "tag"}
    conversion = CONVERSIONS.get(type(message))
    if conversion is None:
        same("the parameters", {}, given)
        return type(message)()
    described = conversion.describe(message, version)
    parameters = _aligned(described, given, recorded.text("tag"))
    return conversion.build(parameters, version)


def _wire_tag(message: Message, version: int) -> str:
    return message.encode(version).partition(b" ")[0].decode()


def _aligned(described: Parameters, given: Mapping[str, Any], where: str) -> Parameters:
    """The recorded values under our names, after comparing them with ours."""
    ours = _with_digests(described, given)
    names = list(given) if given.keys() == ours.keys() else list(ours)
    if len(given) != len(ours):
        raise Mismatch(f"{where} has the parameters {', '.join(ours)}, recorded are {', '.join(given)}")
    values = given if given.keys() == ours.keys() else dict(zip(names, given.values(), strict=True))
    aligned = {name: _compared(ours[name], values[name], f"{where} {name}") for name in ours}
    return {name: aligned.get(name, content) for name, content in described.items()}


def _with_digests(described: Parameters, given: Mapping[str, Any]) -> Parameters:
    by_digest = any(name.endswith("_sha256") for name in given)
    ours: Parameters = {}
    for name, value in described.items():
        if not isinstance(value, Opaque):
            ours[name] = value
        elif by_digest:
            ours[f"{name}_len"] = len(value.content)
            ours[f"{name}_sha256"] = hashlib.sha256(value.content).digest()
        else:
            ours[name] = value.content
    return ours


def _compared(ours: Any, recorded: Any, where: str) -> Any:
    """The recorded value in the form of ours. Raises `Mismatch` if they differ."""
    match ours:
        case bytes() if recorded is not None:
            value = octets(recorded, where)
            same(where, ours, value)
            return value
        case dict() if isinstance(recorded, dict):
            return _aligned(ours, recorded, where)
        case list() if isinstance(recorded, list):
            same(f"the number of {where}", len(ours), len(recorded))
            return [_compared(one, other, where) for one, other in zip(ours, recorded, strict=True)]
        case _:
            same(where, ours, recorded)
            return recorded


def _content(value: Any) -> bytes:
    """A tail, whether it was given in full or only by its digest."""
    content: bytes = value.content if isinstance(value, Opaque) else value
    return content


def _describe_location(location: RouterLocation) -> Parameters:
    return {"hosts": list(location.hosts), "port": location.port, "key_hash": location.key_hash}


def _build_location(given: Parameters) -> RouterLocation:
    return RouterLocation(tuple(given["hosts"]), given["port"], given["key_hash"])


def _describe_new(new: recipient_commands.CreateQueue, version: int) -> Parameters:
    described: Parameters = {
        "rcv_auth": new.auth_key.der,
        "rcv_dh": new.dh_key.der,
        "password": new.password,
        "sub_mode": new.subscription.value.decode(),
    }
    if version >= SHORT_LINKS_VERSION:
        described["queue_req"] = None if new.request is None else _describe_request(new.request)
    elif version >= SENDER_AUTH_KEY_VERSION:
        described["snd_secure"] = new.request == QueueRequest(QueueMode.MESSAGING)
    if version >= NEW_NOTIFIER_CREDS_VERSION:
        described["ntf"] = None if new.notifier is None else _describe_notifier_keys(new.notifier)
    return described


def _build_new(given: Parameters, version: int) -> recipient_commands.CreateQueue:
    request = None
    if given.get("queue_req") is not None:
        request = _build_request(given["queue_req"])
    elif "snd_secure" in given:
        request = QueueRequest(_mode_of_flag(given["snd_secure"]))
    notifier = given.get("ntf")
    return recipient_commands.CreateQueue(
        auth_key_from_der(given["rcv_auth"]),
        dh_key_from_der(given["rcv_dh"]),
        given["password"],
        SubscriptionMode(given["sub_mode"].encode()),
        request,
        None if notifier is None else _build_notifier_keys(notifier),
    )


def _mode_of_flag(sender_can_secure: bool) -> QueueMode:
    return QueueMode.MESSAGING if sender_can_secure else QueueMode.CONTACT


def _describe_request(request: QueueRequest) -> Parameters:
    link = request.link
    described: Parameters = {"mode": request.mode.value.decode(), "data": None}
    if link is not None:
        link_id = {} if link.link_id is None else {"link_id": link.link_id}
        described["data"] = {**link_id, "snd_id": link.sender_id, **_describe_link_data(link.data)}
    return described


def _build_request(given: Parameters) -> QueueRequest:
    link = given["data"]
    return QueueRequest(
        QueueMode(given["mode"].encode()),
        None if link is None else LinkRequest(link.get("link_id"), link["snd_id"], _build_link_data(link)),
    )


def _describe_link_data(data: LinkData) -> Parameters:
    return {"fixed": data.fixed, "user": data.user}


def _build_link_data(given: Parameters) -> LinkData:
    return LinkData(given["fixed"], given["user"])


def _describe_notifier_keys(keys: NotifierKeys) -> Parameters:
    return {"auth": keys.auth_key.der, "dh": keys.dh_key.der}


def _build_notifier_keys(given: Parameters) -> NotifierKeys:
    return NotifierKeys(auth_key_from_der(given["auth"]), dh_key_from_der(given["dh"]))


def _describe_notifier_ids(ids: NotifierIds) -> Parameters:
    return {"notifier_id": ids.notifier_id, "srv_dh": ids.dh_key.der}


def _build_notifier_ids(given: Parameters) -> NotifierIds:
    return NotifierIds(given["notifier_id"], dh_key_from_der(given["srv_dh"]))


def _describe_ids(ids: responses.QueueCreated, version: int) -> Parameters:
    described: Parameters = {
        "rcv_id": ids.recipient_id,
        "snd_id": ids.sender_id,
        "srv_dh": ids.dh_key.der,
    }
    if version >= SHORT_LINKS_VERSION:
        described["mode"] = None if ids.mode is None else ids.mode.value.decode()
        described["link_id"] = ids.link_id
    elif version >= SENDER_AUTH_KEY_VERSION:
        described["snd_secure"] = ids.mode is QueueMode.MESSAGING
    if version >= SERVICE_CERTS_VERSION:
        described["service_id"] = ids.service_id
    if version >= NEW_NOTIFIER_CREDS_VERSION:
        described["ntf"] = None if ids.notifier is None else _describe_notifier_ids(ids.notifier)
    return described


def _build_ids(given: Parameters, version: int) -> responses.QueueCreated:
    mode = None
    if given.get("mode") is not None:
        mode = QueueMode(given["mode"].encode())
    elif "snd_secure" in given:
        mode = _mode_of_flag(given["snd_secure"])
    notifier = given.get("ntf")
    return responses.QueueCreated(
        given["rcv_id"],
        given["snd_id"],
        dh_key_from_der(given["srv_dh"]),
        mode,
        given.get("link_id"),
        given.get("service_id"),
        None if notifier is None else _build_notifier_ids(notifier),
    )


def _describe_flags(flags: MessageFlags) -> str:
    return ("T" if flags.notify else "F") + flags.reserved.decode("latin-1")


def _build_flags(text: str) -> MessageFlags:
    return MessageFlags(text.startswith("T"), text[1:].encode("latin-1"))


def _describe_device_token(token: DeviceToken) -> Parameters:
    return {"provider": token.provider.value.decode(), "token": token.token.decode("latin-1")}


def _build_device_token(given: Parameters) -> DeviceToken:
    return DeviceToken(PushProvider(given["provider"].encode()), given["token"].encode("latin-1"))


def _build_relay_key(given: Parameters) -> CertificateChainKey:
    return CertificateChainKey(tuple(given["certs"]), SignedKey.from_der(given["signed_key"]))


def _describe_association(message: Any, version: int) -> dict[str, Any]:
    return {} if version < SERVICE_HASH_VERSION else {"count": message.count, "ids_hash": message.ids_hash}


def _describe_association_count(message: Any, version: int) -> dict[str, Any]:
    return {"count": message.count, **_describe_association(message, version)}


_RECIPIENT: Final[dict[type[Message], Conversion]] = {
    recipient_commands.CreateQueue: Conversion(_describe_new, _build_new),
    recipient_commands.SecureQueue: Conversion(
        lambda m, _: {"key": m.sender_key.der},
        lambda f, _: recipient_commands.SecureQueue(auth_key_from_der(f["key"])),
    ),
    recipient_commands.ReplaceRecipientKeys: Conversion(
        lambda m, _: {"keys": [key.der for key in m.keys]},
        lambda f, _: recipient_commands.ReplaceRecipientKeys(tuple(map(auth_key_from_der, f["keys"]))),
    ),
    recipient_commands.SetLinkData: Conversion(
        lambda m, _: {"link_id": m.link_id, **_describe_link_data(m.data)},
        lambda f, _: recipient_commands.SetLinkData(f["link_id"], _build_link_data(f)),
    ),
    recipient_commands.EnableNotifications: Conversion(
        lambda m, _: _describe_notifier_keys(m.notifier),
        lambda f, _: recipient_commands.EnableNotifications(_build_notifier_keys(f)),
    ),
    recipient_commands.AcknowledgeMessage: Conversion(
        lambda m, _: {"msg_id": m.message_id},
        lambda f, _: recipient_commands.AcknowledgeMessage(f["msg_id"]),
    ),
}

_SENDER_AND_PROXY: Final[dict[type[Message], Conversion]] = {
    sender_commands.SecureQueueBySender: Conversion(
        lambda m, _: {"key": m.sender_key.der},
        lambda f, _: sender_commands.SecureQueueBySender(auth_key_from_der(f["key"])),
    ),
    sender_commands.SecureLinkedQueue: Conversion(
        lambda m, _: {"key": m.sender_key.der},
        lambda f, _: sender_commands.SecureLinkedQueue(auth_key_from_der(f["key"])),
    ),
    sender_commands.SendMessage: Conversion(
        lambda m, _: {"flags": _describe_flags(m.flags), "body": Opaque(m.body)},
        lambda f, _: sender_commands.SendMessage(_build_flags(f["flags"]), _content(f["body"])),
    ),
    proxy_commands.RequestProxySession: Conversion(
        lambda m, _: {"server": _describe_location(m.relay), "password": m.password},
        lambda f, _: proxy_commands.RequestProxySession(_build_location(f["server"]), f["password"]),
    ),
    proxy_commands.ForwardToRelay: Conversion(
        lambda m, _: {"version": m.version, "key": m.client_key.der, "enc": Opaque(m.transmission)},
        lambda f, _: proxy_commands.ForwardToRelay(
            f["version"], dh_key_from_der(f["key"]), _content(f["enc"])
        ),
    ),
    proxy_commands.RelayForwarded: Conversion(
        lambda m, _: {"enc": Opaque(m.envelope)},
        lambda f, _: proxy_commands.RelayForwarded(_content(f["enc"])),
    ),
    recipient_commands.SubscribeService: Conversion(
        _describe_association, lambda f, _: recipient_commands.SubscribeService(*f.values())
    ),
    notifier_commands.SubscribeServiceNotifications: Conversion(
        _describe_association, lambda f, _: notifier_commands.SubscribeServiceNotifications(*f.values())
    ),
}

_SMP_RESPONSES: Final[dict[type[Message], Conversion]] = {
    responses.QueueCreated: Conversion(_describe_ids, _build_ids),
    responses.LinkContent: Conversion(
        lambda m, _: {"snd_id": m.sender_id, **_describe_link_data(m.data)},
        lambda f, _: responses.LinkContent(f["snd_id"], _build_link_data(f)),
    ),
    responses.Subscribed: Conversion(
        lambda m, _: {"service_id": m.service_id},
        lambda f, _: responses.Subscribed(f["service_id"]),
    ),
    responses.ServiceSubscribed: Conversion(
        _describe_association_count, lambda f, _: responses.ServiceSubscribed(*f.values())
    ),
    responses.ServiceSubscriptionEnded: Conversion(
        _describe_association_count, lambda f, _: responses.ServiceSubscriptionEnded(*f.values())
    ),
    responses.MessageReceived: Conversion(
        lambda m, _: {"msg_id": m.message_id, "body": Opaque(m.sealed)},
        lambda f, _: responses.MessageReceived(f["msg_id"], _content(f["body"])),
    ),
    responses.NotificationsEnabled: Conversion(
        lambda m, _: _describe_notifier_ids(m.notifier),
        lambda f, _: responses.NotificationsEnabled(_build_notifier_ids(f)),
    ),
    responses.NotificationReceived: Conversion(
        lambda m, _: {"nonce": m.nonce, "enc_meta": m.sealed_meta},
        lambda f, _: responses.NotificationReceived(f["nonce"], f["enc_meta"]),
    ),
    responses.ProxySession: Conversion(
        lambda m, _: {
            "session_id": m.session_id,
            "min": m.versions.lowest,
            "max": m.versions.highest,
            "certs": list(m.relay_key.certificates),
            "signed_key": m.relay_key.signed_key.der,
        },
        lambda f, _: responses.ProxySession(
            f["session_id"], VersionRange(f["min"], f["max"]), _build_relay_key(f)
        ),
    ),
    responses.RelayAnswer: Conversion(
        lambda m, _: {"enc": Opaque(m.envelope)},
        lambda f, _: responses.RelayAnswer(_content(f["enc"])),
    ),
    responses.ForwardedAnswer: Conversion(
        lambda m, _: {"enc": Opaque(m.transmission)},
        lambda f, _: responses.ForwardedAnswer(_content(f["enc"])),
    ),
    names.ResolveName: Conversion(
        lambda m, _: {"name": m.name},
        lambda f, _: names.ResolveName(f["name"]),
    ),
    names.NameResolved: Conversion(
        lambda m, _: {"json": Opaque(m.json)},
        lambda f, _: names.NameResolved(_content(f["json"])),
    ),
    responses.QueueInspected: Conversion(
        lambda m, _: {"json": m.json.decode()},
        lambda f, _: responses.QueueInspected(f["json"].encode()),
    ),
    Refused: Conversion(
        lambda m, version: {"error": encode_error(m.error, version).decode()},
        lambda f, _: Refused(decode_error(WireReader(f["error"].encode()))),
    ),
}

_NTF: Final[dict[type[Message], Conversion]] = {
    token_commands.RegisterToken: Conversion(
        lambda m, _: {
            **_describe_device_token(m.token),
            "verify_key": m.verify_key.der,
            "dh_key": m.dh_key.der,
        },
        lambda f, _: token_commands.RegisterToken(
            _build_device_token(f), auth_key_from_der(f["verify_key"]), dh_key_from_der(f["dh_key"])
        ),
    ),
    token_commands.VerifyToken: Conversion(
        lambda m, _: {"code": m.code},
        lambda f, _: token_commands.VerifyToken(f["code"]),
    ),
    token_commands.ReplaceToken: Conversion(
        lambda m, _: _describe_device_token(m.token),
        lambda f, _: token_commands.ReplaceToken(_build_device_token(f)),
    ),
    token_commands.SetPeriodicPush: Conversion(
        lambda m, _: {"minutes": m.minutes},
        lambda f, _: token_commands.SetPeriodicPush(f["minutes"]),
    ),
    subscription_commands.SubscribeToQueue: Conversion(
        lambda m, _: {
            "token_id": m.token_id,
            "server": _describe_location(m.queue.router),
            "notifier_id": m.queue.notifier_id,
            "notifier_key_pkcs8": m.notifier_key.der,
        },
        lambda f, _: subscription_commands.SubscribeToQueue(
            f["token_id"],
            subscription_commands.NotifierQueue(_build_location(f["server"]), f["notifier_id"]),
            private_key_from_der(f["notifier_key_pkcs8"]),
        ),
    ),
    ntf_responses.TokenRegistered: Conversion(
        lambda m, _: {"token_id": m.token_id, "srv_dh": m.dh_key.der},
        lambda f, _: ntf_responses.TokenRegistered(f["token_id"], dh_key_from_der(f["srv_dh"])),
    ),
    ntf_responses.QueueSubscribed: Conversion(
        lambda m, _: {"sub_id": m.subscription_id},
        lambda f, _: ntf_responses.QueueSubscribed(f["sub_id"]),
    ),
    ntf_responses.TokenChecked: Conversion(
        lambda m, version: {"status": m.status.text(version)},
        lambda f, _: ntf_responses.TokenChecked(TokenStatus.parse(f["status"])),
    ),
    ntf_responses.SubscriptionChecked: Conversion(
        lambda m, _: {"status": subscription_status_text(m.status)},
        lambda f, _: ntf_responses.SubscriptionChecked(parse_subscription_status(f["status"])),
    ),
}

CONVERSIONS: Final[dict[type[Message], Conversion]] = {
    **_RECIPIENT,
    **_SENDER_AND_PROXY,
    **_SMP_RESPONSES,
    **_NTF,
}
"""Messages with parameters; the others have nothing but their tag."""
