"""The SMP dialect: 16 KiB blocks and all messages of the protocol."""

from __future__ import annotations

from functools import cache
from typing import Final

from tocsin.protocol.dialect import Dialect
from tocsin.protocol.messages import Command, MessageTable, Response
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp import (
    names,
    notifier_commands,
    proxy_commands,
    recipient_commands,
    responses,
    sender_commands,
)
from tocsin.protocol.smp.versions import (
    AUTH_COMMANDS_VERSION,
    SERVICE_CERTS_VERSION,
    SUPPORTED,
    WITHOUT_ALPN,
)
from tocsin.wire.transmissions import TransmissionLayout

SMP_BLOCK_BYTES: Final = 16384

SMP_COMMANDS: Final = MessageTable[Command](
    recipient_commands.CreateQueue,
    recipient_commands.Subscribe,
    recipient_commands.SubscribeService,
    recipient_commands.SecureQueue,
    recipient_commands.ReplaceRecipientKeys,
    recipient_commands.SetLinkData,
    recipient_commands.DeleteLinkData,
    recipient_commands.EnableNotifications,
    recipient_commands.DisableNotifications,
    recipient_commands.GetMessage,
    recipient_commands.AcknowledgeMessage,
    recipient_commands.SuspendQueue,
    recipient_commands.DeleteQueue,
    recipient_commands.InspectQueue,
    sender_commands.SecureQueueBySender,
    sender_commands.SendMessage,
    sender_commands.SecureLinkedQueue,
    sender_commands.GetLinkData,
    notifier_commands.SubscribeNotifications,
    notifier_commands.SubscribeServiceNotifications,
    proxy_commands.RequestProxySession,
    proxy_commands.ForwardToRelay,
    proxy_commands.RelayForwarded,
    names.ResolveName,
    Ping,
)

SMP_RESPONSES: Final = MessageTable[Response](
    responses.QueueCreated,
    responses.LinkContent,
    responses.Subscribed,
    responses.ServiceSubscribed,
    responses.MessageReceived,
    responses.NotificationsEnabled,
    responses.NotificationReceived,
    responses.ProxySession,
    responses.RelayAnswer,
    responses.ForwardedAnswer,
    responses.SubscriptionEnded,
    responses.ServiceSubscriptionEnded,
    responses.AllDelivered,
    responses.QueueDeleted,
    responses.QueueInspected,
    names.NameResolved,
    Done,
    Refused,
    Pong,
    frequent={b"SOK 0": responses.Subscribed()},
)


@cache
def smp_layout(version: int) -> TransmissionLayout:
    return TransmissionLayout(
        session_id=version < AUTH_COMMANDS_VERSION, service_signature=version >= SERVICE_CERTS_VERSION
    )


SMP: Final = Dialect(
    name="SMP",
    block_size=SMP_BLOCK_BYTES,
    alpn="smp/1",
    supported=SUPPORTED,
    without_alpn=WITHOUT_ALPN,
    batches_from=SUPPORTED.lowest,
    layout=smp_layout,
    commands=SMP_COMMANDS,
    responses=SMP_RESPONSES,
)
