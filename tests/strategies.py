"""Hypothesis strategies for every message of both protocols, and for what they are made of.

A message strategy takes the protocol version and fills only the fields that this version puts on the wire, so that
decoding what was encoded gives an equal message.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tocsin.crypto.keys import (
    AuthPrivateKey,
    AuthPublicKey,
    Ed448PrivateKey,
    Ed448PublicKey,
    Ed25519PrivateKey,
    Ed25519PublicKey,
    X25519PrivateKey,
    X25519PublicKey,
    is_low_order,
)
from tocsin.crypto.signed_keys import SignedKey
from tocsin.crypto.web_push import SECRET_BYTES, WebPushSecret
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.error_codes import (
    BLOCKED_VERSION,
    MAX_PROXY_DEPTH,
    NOTICE_VERSION,
    Blocked,
    BlockNotice,
    BlockReason,
    BrokerFault,
    BrokerResponse,
    CommandFault,
    ErrorCode,
    NameFault,
    NetworkFault,
    NetworkFaultKind,
    ProxyBroker,
    ProxyFault,
    ProxyProtocol,
    ResolverFault,
    RouterError,
    StoreFault,
    TransportFault,
)
from tocsin.protocol.messages import Message
from tocsin.protocol.ntf import responses as ntf_responses
from tocsin.protocol.ntf import subscription_commands, token_commands
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import PushedNotification
from tocsin.protocol.ntf.statuses import (
    InvalidReason,
    SubscriptionFailed,
    SubscriptionState,
    SubscriptionStatus,
    TokenState,
    TokenStatus,
)
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.ntf.versions import INVALID_REASON_VERSION
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp import (
    names,
    notifier_commands,
    proxy_commands,
    recipient_commands,
    responses,
    sender_commands,
)
from tocsin.protocol.smp.delivered_messages import Delivered, DeliveredMessage, QuotaMarker
from tocsin.protocol.smp.hellos import ClientHello, RouterHello, ServiceHello
from tocsin.protocol.smp.queue_information import (
    DeliveryState,
    HeadMessage,
    MessageKind,
    QueueInformation,
    SubscriptionInformation,
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
from tocsin.protocol.smp.queue_uris import QueueUri
from tocsin.protocol.smp.sender_commands import MessageFlags
from tocsin.protocol.smp.versions import (
    AUTH_COMMANDS_VERSION,
    DELETED_EVENT_VERSION,
    NEW_NOTIFIER_CREDS_VERSION,
    PROXY_FLAG_VERSION,
    SENDER_AUTH_KEY_VERSION,
    SERVICE_CERTS_VERSION,
    SHORT_LINKS_VERSION,
)
from tocsin.wire.versions import VersionRange

# ---- primitives

short_octets: Final = st.binary(max_size=255)
tails: Final = st.binary(max_size=300)
identifiers: Final = st.binary(min_size=24, max_size=24)
short_ids: Final = st.one_of(identifiers, st.binary(min_size=1, max_size=255))
"""Ids of any length that can be read; those of routers have 24 bytes."""
nonces: Final = identifiers
u16s: Final = st.integers(0, 0xFFFF)
i64s: Final = st.integers(-(2**63), 2**63 - 1)
version_ranges: Final = st.tuples(u16s, u16s).map(lambda pair: VersionRange(min(pair), max(pair)))
short_texts: Final = st.text(max_size=60)

# ---- keys

x25519_keys: Final = (
    st.binary(min_size=32, max_size=32).filter(lambda raw: not is_low_order(raw)).map(X25519PublicKey)
)
ed25519_keys: Final = st.binary(min_size=32, max_size=32).map(Ed25519PublicKey)
ed448_keys: Final = st.binary(min_size=57, max_size=57).map(Ed448PublicKey)
auth_keys: Final[SearchStrategy[AuthPublicKey]] = st.one_of(ed25519_keys, x25519_keys, ed448_keys)

# Making a private key costs a scalar multiplication, so a few are enough.
private_keys: Final[SearchStrategy[AuthPrivateKey]] = st.sampled_from(
    (
        *(Ed25519PrivateKey(bytes((seed,)) * 32) for seed in range(1, 4)),
        *(X25519PrivateKey(bytes((seed,)) * 32) for seed in range(1, 4)),
        *(Ed448PrivateKey(bytes((seed,)) * 57) for seed in range(1, 3)),
    )
)
_SIGNED_KEYS: Final = tuple(
    SignedKey.sign(key, signer)
    for key in (X25519PrivateKey(b"\x05" * 32).public, Ed25519PrivateKey(b"\x06" * 32).public)
    for signer in (Ed25519PrivateKey(b"\x07" * 32), Ed448PrivateKey(b"\x08" * 57))
)
signed_keys: Final = st.sampled_from(_SIGNED_KEYS)
chain_keys: Final = st.builds(
    CertificateChainKey, st.lists(tails, min_size=1, max_size=4).map(tuple), signed_keys
)

# ---- addresses

_LABEL: Final = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=12)
domains: Final = st.lists(_LABEL, min_size=1, max_size=3).map(lambda labels: "x" + ".".join(labels))
onions: Final = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=56, max_size=56).map(
    lambda name: f"{name}.onion"
)
hosts: Final = st.one_of(
    domains.filter(lambda name: not name.endswith(".onion")),
    onions,
    st.ip_addresses(v=4).map(str),
    # Not from ::ffff:0:0/96, whose text depends on the version of Python.
    st.integers(2**112, 2**128 - 1).map(lambda number: str(IPv6Address(number))),
)
ports: Final = st.one_of(st.just(""), st.integers(1, 65535).map(str))
key_hashes: Final = st.binary(min_size=32, max_size=32)
locations: Final = st.builds(
    RouterLocation, st.lists(hosts, min_size=1, max_size=3).map(tuple), ports, key_hashes
)
passwords: Final = st.text("abcXYZ0189!#$%&*+=?^_~-.", min_size=1, max_size=20)
addresses: Final = st.one_of(
    st.builds(RouterAddress, st.sampled_from((Scheme.SMP, Scheme.XFTP)), locations, st.none() | passwords),
    st.builds(RouterAddress, st.just(Scheme.NTF), locations),
)
queue_uris: Final = st.builds(
    QueueUri,
    locations,
    st.binary(min_size=1, max_size=32),
    st.tuples(st.integers(1, 4), st.integers(1, 4)).map(lambda pair: VersionRange(min(pair), max(pair))),
    x25519_keys,
    st.none() | st.sampled_from(QueueMode),
)

# ---- parts of SMP messages

link_data: Final = st.builds(LinkData, tails, tails)
notifier_keys: Final = st.builds(NotifierKeys, auth_keys, x25519_keys)
notifier_ids: Final = st.builds(NotifierIds, short_ids, x25519_keys)
queue_requests: Final = st.one_of(
    st.builds(
        QueueRequest,
        st.just(QueueMode.MESSAGING),
        st.none() | st.builds(LinkRequest, st.none(), short_ids, link_data),
    ),
    st.builds(
        QueueRequest,
        st.just(QueueMode.CONTACT),
        st.none() | st.builds(LinkRequest, short_ids, short_ids, link_data),
    ),
)
flags: Final = st.builds(
    MessageFlags, st.booleans(), st.binary(max_size=6).map(lambda data: data.replace(b" ", b"_"))
)
delivered: Final[SearchStrategy[Delivered]] = st.one_of(
    # A message whose first six bytes read `QUOTA ` is a marker for any reader; no clock says that.
    st.builds(DeliveredMessage, st.integers(0, 2**40), flags, tails),
    st.builds(QuotaMarker, i64s),
)
domain_names: Final = st.from_regex(
    r"[a-z0-9]{1,20}(-[a-z0-9]{1,20})?(\.[a-z0-9]{1,20}){1,5}", fullmatch=True
)
queue_information: Final = st.builds(
    QueueInformation,
    st.booleans(),
    st.booleans(),
    st.none() | st.builds(SubscriptionInformation, st.sampled_from(DeliveryState), st.none() | tails),
    st.integers(0, 1000),
    st.none() | st.builds(HeadMessage, tails, short_texts, st.sampled_from(MessageKind)),
)


def errors(version: int, depth: int = MAX_PROXY_DEPTH) -> SearchStrategy[RouterError]:
    """Errors that `version` can say; v18 for all of them."""
    simple: list[SearchStrategy[RouterError]] = [
        st.sampled_from(ErrorCode),
        st.sampled_from(CommandFault),
        st.sampled_from(ProxyFault),
        st.builds(StoreFault, short_texts),
        st.sampled_from(NameFault),
        st.builds(ResolverFault, short_texts),
        st.builds(ProxyBroker, _broker_faults),
    ]
    if version >= BLOCKED_VERSION:
        notices = st.builds(BlockNotice, st.none() | st.integers(0, 2**40))
        notice = st.none() | notices if version >= NOTICE_VERSION else st.none()
        simple.append(st.builds(Blocked, st.sampled_from(BlockReason), notice))
    if depth:
        simple.append(st.builds(ProxyProtocol, st.deferred(lambda: errors(version, depth - 1))))
    return st.one_of(simple)


_WITH_TEXT: Final = (NetworkFaultKind.CONNECT, NetworkFaultKind.TLS, NetworkFaultKind.SUBSCRIBE)
_broker_faults: Final = st.one_of(
    st.sampled_from(BrokerFault),
    st.sampled_from(TransportFault),
    st.builds(BrokerResponse, st.booleans(), short_texts),
    st.just(NetworkFault()),
    st.builds(NetworkFault, st.sampled_from(_WITH_TEXT), short_texts),
    st.builds(NetworkFault, st.sampled_from([kind for kind in NetworkFaultKind if kind not in _WITH_TEXT])),
)


def _created_queues(version: int) -> SearchStrategy[Message]:
    request: SearchStrategy[QueueRequest | None] = st.none()
    if version >= SHORT_LINKS_VERSION:
        request = st.none() | queue_requests
    elif version >= SENDER_AUTH_KEY_VERSION:
        request = st.builds(QueueRequest, st.sampled_from(QueueMode))
    notifier = st.none() | notifier_keys if version >= NEW_NOTIFIER_CREDS_VERSION else st.none()
    return st.builds(
        recipient_commands.CreateQueue,
        auth_keys,
        x25519_keys,
        st.none() | short_octets,
        st.sampled_from(SubscriptionMode),
        request,
        notifier,
    )


def _queue_ids(version: int) -> SearchStrategy[Message]:
    mode: SearchStrategy[QueueMode | None] = st.none()
    if version >= SHORT_LINKS_VERSION:
        mode = st.none() | st.sampled_from(QueueMode)
    elif version >= SENDER_AUTH_KEY_VERSION:
        mode = st.sampled_from(QueueMode)
    return st.builds(
        responses.QueueCreated,
        short_ids,
        short_ids,
        x25519_keys,
        mode,
        st.none() | short_ids if version >= SHORT_LINKS_VERSION else st.none(),
        st.none() | short_ids if version >= SERVICE_CERTS_VERSION else st.none(),
        st.none() | notifier_ids if version >= NEW_NOTIFIER_CREDS_VERSION else st.none(),
    )


def _any_version(strategy: SearchStrategy[Any]) -> Callable[[int], SearchStrategy[Message]]:
    return lambda version: strategy


_RECIPIENT_COMMANDS: Final[dict[type[Message], Callable[[int], SearchStrategy[Message]]]] = {
    recipient_commands.CreateQueue: _created_queues,
    recipient_commands.SecureQueue: _any_version(st.builds(recipient_commands.SecureQueue, auth_keys)),
    recipient_commands.ReplaceRecipientKeys: _any_version(
        st.builds(
            recipient_commands.ReplaceRecipientKeys, st.lists(auth_keys, min_size=1, max_size=4).map(tuple)
        )
    ),
    recipient_commands.SetLinkData: _any_version(
        st.builds(recipient_commands.SetLinkData, short_ids, link_data)
    ),
    recipient_commands.EnableNotifications: _any_version(
        st.builds(recipient_commands.EnableNotifications, notifier_keys)
    ),
    recipient_commands.AcknowledgeMessage: _any_version(
        st.builds(recipient_commands.AcknowledgeMessage, short_octets)
    ),
}

_SENDER_AND_PROXY_COMMANDS: Final[dict[type[Message], Callable[[int], SearchStrategy[Message]]]] = {
    sender_commands.SecureQueueBySender: _any_version(
        st.builds(sender_commands.SecureQueueBySender, auth_keys)
    ),
    sender_commands.SecureLinkedQueue: _any_version(st.builds(sender_commands.SecureLinkedQueue, auth_keys)),
    sender_commands.SendMessage: _any_version(st.builds(sender_commands.SendMessage, flags, tails)),
    proxy_commands.RequestProxySession: _any_version(
        st.builds(proxy_commands.RequestProxySession, locations, st.none() | short_octets)
    ),
    proxy_commands.ForwardToRelay: _any_version(
        st.builds(proxy_commands.ForwardToRelay, u16s, x25519_keys, tails)
    ),
    proxy_commands.RelayForwarded: _any_version(st.builds(proxy_commands.RelayForwarded, tails)),
    recipient_commands.SubscribeService: _any_version(st.just(recipient_commands.SubscribeService())),
    notifier_commands.SubscribeServiceNotifications: _any_version(
        st.just(notifier_commands.SubscribeServiceNotifications())
    ),
}

_SMP_RESPONSES: Final[dict[type[Message], Callable[[int], SearchStrategy[Message]]]] = {
    responses.QueueCreated: _queue_ids,
    responses.LinkContent: _any_version(st.builds(responses.LinkContent, short_octets, link_data)),
    responses.Subscribed: _any_version(st.builds(responses.Subscribed, st.none() | short_ids)),
    responses.ServiceSubscribed: _any_version(st.builds(responses.ServiceSubscribed, i64s)),
    responses.ServiceSubscriptionEnded: _any_version(st.builds(responses.ServiceSubscriptionEnded, i64s)),
    responses.MessageReceived: _any_version(st.builds(responses.MessageReceived, short_octets, tails)),
    responses.NotificationsEnabled: _any_version(st.builds(responses.NotificationsEnabled, notifier_ids)),
    responses.NotificationReceived: _any_version(
        st.builds(responses.NotificationReceived, nonces, short_octets)
    ),
    responses.ProxySession: _any_version(
        st.builds(responses.ProxySession, short_octets, version_ranges, chain_keys)
    ),
    responses.RelayAnswer: _any_version(st.builds(responses.RelayAnswer, tails)),
    responses.ForwardedAnswer: _any_version(st.builds(responses.ForwardedAnswer, tails)),
    names.ResolveName: _any_version(st.builds(names.ResolveName, domain_names)),
    names.NameResolved: _any_version(st.builds(names.NameResolved, tails)),
    responses.QueueInspected: _any_version(
        queue_information.map(lambda information: responses.QueueInspected(information.to_json()))
    ),
    Refused: lambda version: st.builds(Refused, errors(version)),
}

# ---- NTF

device_tokens: Final = st.builds(DeviceToken, st.sampled_from(PushProvider), short_octets)
hex_device_tokens: Final = st.builds(
    DeviceToken,
    st.sampled_from([provider for provider in PushProvider if provider.name.startswith("APNS")]),
    st.binary(min_size=1, max_size=32).map(lambda data: data.hex().encode()),
)
fcm_device_tokens: Final = st.builds(
    DeviceToken, st.just(PushProvider.FCM), st.from_regex(rb"[A-Za-z0-9_:-]{20,255}", fullmatch=True)
)
web_push_addresses: Final = st.builds(
    WebPushAddress,
    st.sampled_from([WebPushSecret(bytes((seed,)) * SECRET_BYTES).receiver for seed in range(1, 9)]),
    st.sampled_from(["push.example.net", "a", "x-1.example", "192.0.2.7", "2001:db8::1"]),
    st.sampled_from([443, 1, 80, 8443, 65535]),
    st.from_regex(r"/[A-Za-z0-9._~/?=&:-]{0,80}", fullmatch=True),
)
web_push_device_tokens: Final = web_push_addresses.map(
    lambda address: DeviceToken(PushProvider.WEBPUSH, address.token())
)
notifier_queues: Final = st.builds(NotifierQueue, locations, st.binary(min_size=1, max_size=40))


def token_statuses(version: int) -> SearchStrategy[TokenStatus]:
    plain = st.builds(TokenStatus, st.sampled_from(TokenState))
    if version < INVALID_REASON_VERSION:
        return plain
    return plain | st.builds(TokenStatus, st.just(TokenState.INVALID), st.sampled_from(InvalidReason))


subscription_statuses: Final[SearchStrategy[SubscriptionStatus]] = st.one_of(
    st.sampled_from(SubscriptionState), st.builds(SubscriptionFailed, short_texts)
)
pushed_notifications: Final = st.builds(
    PushedNotification,
    notifier_queues,
    st.integers(0, 10**18 - 1),
    nonces,
    st.binary(min_size=1, max_size=200),
)

_NTF_MESSAGES: Final[dict[type[Message], Callable[[int], SearchStrategy[Message]]]] = {
    token_commands.RegisterToken: _any_version(
        st.builds(token_commands.RegisterToken, device_tokens, auth_keys, x25519_keys)
    ),
    token_commands.VerifyToken: _any_version(st.builds(token_commands.VerifyToken, short_octets)),
    token_commands.ReplaceToken: _any_version(st.builds(token_commands.ReplaceToken, device_tokens)),
    token_commands.SetPeriodicPush: _any_version(st.builds(token_commands.SetPeriodicPush, u16s)),
    subscription_commands.SubscribeToQueue: _any_version(
        st.builds(subscription_commands.SubscribeToQueue, short_octets, notifier_queues, private_keys)
    ),
    ntf_responses.TokenRegistered: _any_version(
        st.builds(ntf_responses.TokenRegistered, short_ids, x25519_keys)
    ),
    ntf_responses.QueueSubscribed: _any_version(st.builds(ntf_responses.QueueSubscribed, short_ids)),
    ntf_responses.TokenChecked: lambda version: st.builds(
        ntf_responses.TokenChecked, token_statuses(version)
    ),
    ntf_responses.SubscriptionChecked: _any_version(
        st.builds(ntf_responses.SubscriptionChecked, subscription_statuses)
    ),
}

MESSAGES_WITH_BODY: Final = {
    **_RECIPIENT_COMMANDS,
    **_SENDER_AND_PROXY_COMMANDS,
    **_SMP_RESPONSES,
    **_NTF_MESSAGES,
}


def messages(kind: type[Message], version: int) -> SearchStrategy[Message]:
    """Messages of one class as `version` can carry them."""
    if not kind.has_body:
        return st.just(kind())
    return MESSAGES_WITH_BODY[kind](version)


def says_it(kind: type[Message], version: int) -> bool:
    """Whether the message has its own tag in this version; SOK was OK before v16, DELD was END before v10."""
    first = {
        responses.Subscribed: SERVICE_CERTS_VERSION,
        responses.QueueDeleted: DELETED_EVENT_VERSION,
    }
    return version >= first.get(kind, 0)


# ---- hellos

_service_hellos: Final = st.builds(ServiceHello, st.sampled_from(ServiceRole), chain_keys)


def router_hellos() -> SearchStrategy[RouterHello]:
    """The key is there exactly if the highest version knows it."""

    def with_key(versions: VersionRange) -> SearchStrategy[RouterHello]:
        key = chain_keys if versions.highest >= AUTH_COMMANDS_VERSION else st.none()
        return st.builds(RouterHello, st.just(versions), short_octets, key)

    return version_ranges.flatmap(with_key)


def client_hellos(version: int) -> SearchStrategy[ClientHello]:
    return st.builds(
        ClientHello,
        st.just(version),
        short_octets,
        st.none() | x25519_keys if version >= AUTH_COMMANDS_VERSION else st.none(),
        st.booleans() if version >= PROXY_FLAG_VERSION else st.just(False),
        st.none() | _service_hellos if version >= SERVICE_CERTS_VERSION else st.none(),
    )
