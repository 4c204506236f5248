"""One or more messages of every kind, as seeds: a fuzzer does not guess tags and keys."""

from __future__ import annotations

from typing import Final

from fuzz import fixed_parties as fixed
from tocsin.crypto.signed_keys import SignedKey
from tocsin.crypto.web_push import WebPushSecret
from tocsin.protocol import error_codes as errors
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.agent import agent_messages
from tocsin.protocol.certificate_keys import CertificateChainKey
from tocsin.protocol.direct import ntf_messages as direct_ntf
from tocsin.protocol.direct import packets as direct_packets
from tocsin.protocol.direct import smp_commands as direct_smp
from tocsin.protocol.direct import smp_responses as direct_answers
from tocsin.protocol.direct import vapid_keys
from tocsin.protocol.direct.dialects import DIRECT_NTF, DIRECT_SMP
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.registration import NtfRouterCredentials
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf import responses as ntf_responses
from tocsin.protocol.ntf import statuses, subscription_commands, token_commands
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.pushes import CheckMessagesPush, PushedNotification, seal_code, seal_notifications
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp import (
    names,
    notifier_commands,
    proxy_commands,
    queue_information,
    queue_modes,
    recipient_commands,
    responses,
    sender_commands,
)
from tocsin.protocol.smp.delivered_messages import DeliveredMessage, NotificationMeta, QuotaMarker
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.proxying import RelayEnvelope
from tocsin.protocol.smp.queue_uris import QueueUri
from tocsin.wire.versions import VersionRange

ID: Final = b"an id of twenty-four b.."
_AUTH: Final = fixed.ENTITY_KEY.public
_DH: Final = fixed.ENTITY_DH_KEY.public
_NOTIFIER: Final = queue_modes.NotifierKeys(_DH, _DH)
_LINK: Final = queue_modes.LinkData(b"fixed", b"user")
_CHAIN_KEY: Final = CertificateChainKey(fixed.ROUTER.chain, SignedKey.sign(_DH, fixed.LEAF_KEY))

LOCATIONS: Final = (
    RouterLocation(("smp.example.com",), "", fixed.ROUTER.fingerprint),
    RouterLocation(("smp.example.com", "abc234.onion"), "5223", fixed.ROUTER.fingerprint),
    RouterLocation(("192.0.2.1", "2001:db8::1"), "443", fixed.ROUTER.fingerprint),
    RouterLocation(("2001:db8::1",), "", fixed.ROUTER.fingerprint),
    RouterLocation(("smp4.simplex.im",), "", fixed.ROUTER.fingerprint),
)
NAMES: Final = ("alice.simplex", "a-b.c.testing", "1.example")
NAME_RECORDS: Final = (
    names.name_record(b"{}"),
    names.name_record(
        b'{"name":"alice.simplex","simplexContact":["https://x/a#k"],"eth":"0x1","owner":"0x0"}'
    ),
)
ADDRESSES: Final = (
    *(RouterAddress(Scheme.SMP, location) for location in LOCATIONS),
    RouterAddress(Scheme.SMP, LOCATIONS[1], "password"),
    RouterAddress(Scheme.NTF, LOCATIONS[0]),
    RouterAddress(Scheme.XFTP, LOCATIONS[2]),
)
QUEUE_URIS: Final = tuple(
    QueueUri(location, ID, VersionRange(lowest, 4), _DH, mode)
    for location in LOCATIONS
    for lowest in (1, 3, 4)
    for mode in (None, *queue_modes.QueueMode)
)
AGENT_MESSAGES: Final = (
    agent_messages.Introduction(_AUTH, True, QUEUE_URIS[0]),
    agent_messages.Welcome(_AUTH, False),
    agent_messages.QueueInUse(_AUTH, True),
    agent_messages.UseQueue(QUEUE_URIS[1]),
    agent_messages.Text(b"hello"),
)
NOTIFIER_QUEUES: Final = tuple(
    subscription_commands.NotifierQueue(location.with_legacy_onion(), ID) for location in LOCATIONS
)
TOKEN: Final = DeviceToken(PushProvider.APNS_TEST, b"0123456789abcdef")
_WEB_PUSH_RECEIVER: Final = WebPushSecret(b"\x07" * 48).receiver
WEB_PUSH_TOKEN: Final = DeviceToken(
    PushProvider.WEBPUSH,
    WebPushAddress.from_url("https://[2001:db8::1]:8443/up?a", _WEB_PUSH_RECEIVER).token(),
)
REFERENCE_WEB_PUSH_TOKEN: Final = DeviceToken(
    PushProvider.WEBPUSH,
    WebPushAddress.from_url(
        "https://push.example.org:8443/up?a", _WEB_PUSH_RECEIVER, WebPushForm.REFERENCE
    ).token(),
)

NTF_KEY_OFFER: Final = NtfKeyOffer(_DH, 1_900_000_000)
STATEMENTS: Final = tuple(
    direct_packets.Statement(kind, ID, queue)
    for kind in direct_packets.PacketKind
    for queue in NOTIFIER_QUEUES
)
PACKET: Final = direct_packets.seal_packet(
    STATEMENTS[0],
    ntf_identity=bytes(32),
    token_key=fixed.ENTITY_KEY,
    offer=NTF_KEY_OFFER,
    ephemeral=fixed.ENTITY_DH_KEY,
)
_NTF_SUBSCRIPTION: Final = direct_smp.NtfSubscription(
    _DH, LOCATIONS[1], ID[:24].ljust(24, b"n"), MinimumPriority.PRIORITY, PACKET
)
DIRECT_SMP_COMMANDS: Final[tuple[Command, ...]] = (
    direct_smp.CreateNotifyingQueue(_AUTH, _DH),
    direct_smp.CreateNotifyingQueue(_AUTH, _DH, direct=_NTF_SUBSCRIPTION),
    direct_smp.SubscribeNotificationsAs(),
    direct_smp.SubscribeNotificationsAs(ID),
    direct_smp.DisableNotificationsProven(PACKET),
    direct_smp.DeleteQueueProven(),
    direct_smp.DeleteQueueProven(PACKET),
    direct_smp.RegisterNtfRouter(
        NtfRouterCredentials(LOCATIONS[0], (b"leaf", b"authority"), fixed.ENTITY_KEY.public, 7, b"signature")
    ),
    direct_smp.SubscribeNtfRouter(7),
    notifier_commands.AcknowledgeNotifications(7),
    direct_smp.AssociateQueue(_NTF_SUBSCRIPTION),
    direct_smp.AssociateQueue(_NTF_SUBSCRIPTION, PACKET),
    direct_smp.SendPacketAgain(),
    direct_smp.SendPacketAgain(PACKET),
    *(direct_smp.SetMinimumPriority(each) for each in MinimumPriority),
)
DIRECT_SMP_RESPONSES: Final[tuple[Response, ...]] = (
    direct_answers.NtfRouterRegistered(ID),
    direct_answers.NtfRouterSubscribed(7),
    direct_answers.NotificationsAcknowledged(7),
    *(direct_answers.QueueAssociated(_DH, fate) for fate in direct_packets.PacketFate),
    *(direct_answers.PacketStatus(fate) for fate in direct_packets.PacketFate),
)
DIRECT_NTF_COMMANDS: Final[tuple[Command, ...]] = (direct_ntf.ForwardPacket(PACKET), vapid_keys.AskVapidKey())
DIRECT_NTF_RESPONSES: Final[tuple[Response, ...]] = (
    *(direct_ntf.PacketHandled(fate) for fate in direct_packets.PacketFate),
    direct_ntf.TokenRegisteredWithKey(ID, _DH),
    direct_ntf.TokenRegisteredWithKey(ID, _DH, NTF_KEY_OFFER),
    vapid_keys.SignedVapidKey(_WEB_PUSH_RECEIVER.public_key, b"signature"),
    direct_ntf.TokenCheckedWithKey(statuses.TokenStatus(statuses.TokenState.ACTIVE)),
    direct_ntf.TokenCheckedWithKey(statuses.TokenStatus(statuses.TokenState.ACTIVE), NTF_KEY_OFFER),
)

SMP_COMMANDS: Final[tuple[Command, ...]] = (
    recipient_commands.CreateQueue(_AUTH, _DH),
    recipient_commands.CreateQueue(
        fixed.ENTITY_KEY_448.public,
        _DH,
        b"password",
        queue_modes.SubscriptionMode.CREATE_ONLY,
        queue_modes.QueueRequest(queue_modes.QueueMode.MESSAGING, queue_modes.LinkRequest(None, ID, _LINK)),
        _NOTIFIER,
    ),
    recipient_commands.CreateQueue(
        _DH,
        _DH,
        request=queue_modes.QueueRequest(
            queue_modes.QueueMode.CONTACT, queue_modes.LinkRequest(ID, ID, _LINK)
        ),
    ),
    recipient_commands.Subscribe(),
    recipient_commands.SubscribeService(),
    recipient_commands.SecureQueue(_AUTH),
    recipient_commands.ReplaceRecipientKeys((_AUTH, _DH)),
    recipient_commands.SetLinkData(ID, _LINK),
    recipient_commands.DeleteLinkData(),
    recipient_commands.EnableNotifications(_NOTIFIER),
    recipient_commands.DisableNotifications(),
    recipient_commands.GetMessage(),
    recipient_commands.AcknowledgeMessage(ID),
    recipient_commands.SuspendQueue(),
    recipient_commands.DeleteQueue(),
    recipient_commands.InspectQueue(),
    sender_commands.SecureQueueBySender(_AUTH),
    sender_commands.SendMessage(sender_commands.MessageFlags(notify=True), b"body"),
    sender_commands.SendMessage(sender_commands.MessageFlags(notify=False, reserved=b"xy"), b""),
    sender_commands.SecureLinkedQueue(_AUTH),
    sender_commands.GetLinkData(),
    notifier_commands.SubscribeNotifications(),
    notifier_commands.SubscribeServiceNotifications(),
    *(proxy_commands.RequestProxySession(location, b"password") for location in LOCATIONS),
    proxy_commands.RequestProxySession(LOCATIONS[0]),
    proxy_commands.ForwardToRelay(17, _DH, b"sealed"),
    proxy_commands.RelayForwarded(b"envelope"),
    *(names.ResolveName(name) for name in NAMES),
    Ping(),
)
NTF_COMMANDS: Final[tuple[Command, ...]] = (
    *(token_commands.RegisterToken(DeviceToken(each, b"ab12"), _AUTH, _DH) for each in PushProvider),
    token_commands.VerifyToken(b"code"),
    token_commands.CheckToken(),
    token_commands.ReplaceToken(TOKEN),
    token_commands.ReplaceToken(WEB_PUSH_TOKEN),
    token_commands.ReplaceToken(REFERENCE_WEB_PUSH_TOKEN),
    token_commands.DeleteToken(),
    token_commands.SetPeriodicPush(20),
    *(
        subscription_commands.SubscribeToQueue(ID, queue, key)
        for queue in NOTIFIER_QUEUES
        for key in (fixed.ENTITY_KEY, fixed.ENTITY_DH_KEY, fixed.ENTITY_KEY_448)
    ),
    subscription_commands.CheckSubscription(),
    subscription_commands.DeleteSubscription(),
    Ping(),
)

_PLAIN_ERRORS: Final[tuple[errors.RouterError, ...]] = (
    *errors.ErrorCode,
    *errors.CommandFault,
    *errors.ProxyFault,
    errors.StoreFault("text"),
    *errors.NameFault,
    errors.ResolverFault("timeout"),
    errors.Blocked(errors.BlockReason.SPAM),
    errors.Blocked(errors.BlockReason.CONTENT, errors.BlockNotice(None)),
    errors.Blocked(errors.BlockReason.CONTENT, errors.BlockNotice(86400)),
)
_BROKER_FAULTS: Final[tuple[errors.AnyBrokerFault, ...]] = (
    *errors.BrokerFault,
    *errors.TransportFault,
    errors.BrokerResponse(expected=True, text="text"),
    errors.BrokerResponse(expected=False, text="text"),
    errors.NetworkFault(),
    *(
        errors.NetworkFault(kind, "text" if kind.value in ("CONNECT", "TLS", "SUBSCRIBE") else "")
        for kind in errors.NetworkFaultKind
    ),
)
ERRORS: Final[tuple[errors.RouterError, ...]] = (
    *_PLAIN_ERRORS,
    *(errors.ProxyBroker(fault) for fault in _BROKER_FAULTS),
    *(errors.ProxyProtocol(error) for error in _PLAIN_ERRORS),
    errors.ProxyProtocol(errors.ProxyProtocol(errors.ProxyProtocol(errors.ErrorCode.AUTH))),
)

QUEUE_INFORMATION: Final = (
    queue_information.QueueInformation(False, False, None, 0, None),
    queue_information.QueueInformation(
        True,
        True,
        queue_information.SubscriptionInformation(queue_information.DeliveryState.PENDING, ID),
        3,
        queue_information.HeadMessage(ID, "2026-11-15T12:00:00Z", queue_information.MessageKind.MESSAGE),
    ),
)

SMP_RESPONSES: Final[tuple[Response, ...]] = (
    responses.QueueCreated(ID, ID, _DH),
    responses.QueueCreated(
        ID, ID, _DH, queue_modes.QueueMode.MESSAGING, ID, ID, queue_modes.NotifierIds(ID, _DH)
    ),
    responses.LinkContent(ID, _LINK),
    responses.Subscribed(),
    responses.Subscribed(ID),
    responses.ServiceSubscribed(7),
    responses.MessageReceived(ID, b"sealed"),
    responses.NotificationsEnabled(queue_modes.NotifierIds(ID, _DH)),
    responses.NotificationReceived(fixed.NONCE, b"sealed"),
    responses.ProxySession(fixed.SESSION_ID, VersionRange(8, 17), _CHAIN_KEY),
    responses.RelayAnswer(b"envelope"),
    responses.ForwardedAnswer(b"sealed"),
    responses.SubscriptionEnded(),
    responses.ServiceSubscriptionEnded(7),
    responses.AllDelivered(),
    responses.QueueDeleted(),
    *(responses.QueueInspected(each.to_json()) for each in QUEUE_INFORMATION),
    *(names.NameResolved(each) for each in NAME_RECORDS),
    Done(),
    Pong(),
    *(Refused(error) for error in ERRORS),
)

TOKEN_STATUSES: Final = (
    *(statuses.TokenStatus(state) for state in statuses.TokenState),
    *(statuses.TokenStatus(statuses.TokenState.INVALID, reason) for reason in statuses.InvalidReason),
)
SUBSCRIPTION_STATUSES: Final[tuple[statuses.SubscriptionStatus, ...]] = (
    *statuses.SubscriptionState,
    statuses.SubscriptionFailed("CMD PROHIBITED"),
)
NTF_RESPONSES: Final[tuple[Response, ...]] = (
    ntf_responses.TokenRegistered(ID, _DH),
    ntf_responses.QueueSubscribed(ID),
    *(ntf_responses.TokenChecked(status) for status in TOKEN_STATUSES),
    *(ntf_responses.SubscriptionChecked(status) for status in SUBSCRIPTION_STATUSES),
    Done(),
    Pong(),
    *(Refused(error) for error in ERRORS),
)

NOTIFICATIONS: Final = tuple(
    PushedNotification(queue, 1794729700, fixed.NONCE, b"sealed metadata") for queue in NOTIFIER_QUEUES
)
PUSHES: Final = (
    CheckMessagesPush(),
    seal_code(fixed.BOX_KEY, fixed.NONCE, b"code"),
    seal_notifications(fixed.BOX_KEY, fixed.NONCE, NOTIFICATIONS),
)
DELIVERED: Final = (
    DeliveredMessage(1794729700, sender_commands.MessageFlags(notify=True), b"body"),
    QuotaMarker(1794729700),
)
META: Final = NotificationMeta(ID, 1794729700)
RELAY_ENVELOPE: Final = RelayEnvelope(ID, 17, _DH, b"sealed transmission")

MESSAGES: Final[dict[str, tuple[tuple[Command, ...], tuple[Response, ...]]]] = {
    SMP.alpn: (SMP_COMMANDS, SMP_RESPONSES),
    NTF.alpn: (NTF_COMMANDS, NTF_RESPONSES),
    DIRECT_SMP.alpn: (DIRECT_SMP_COMMANDS, DIRECT_SMP_RESPONSES),
    DIRECT_NTF.alpn: (DIRECT_NTF_COMMANDS, DIRECT_NTF_RESPONSES),
}
"""By the ALPN of their dialect."""
