"""SMP and NTF with direct notifications: their own ALPN values, the same versions, some additional messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tocsin.protocol.dialect import Dialect
from tocsin.protocol.direct import ntf_messages, smp_commands, smp_responses
from tocsin.protocol.direct.vapid_keys import AskVapidKey, SignedVapidKey
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications
from tocsin.protocol.smp.versions import SERVICE_CERTS_VERSION
from tocsin.protocol.smp.versions import SUPPORTED as SMP_VERSIONS
from tocsin.wire.versions import VersionRange

DIRECT_SMP: Final = replace(
    SMP,
    alpn="smp+direct/1",
    supported=VersionRange(SERVICE_CERTS_VERSION, SMP_VERSIONS.highest),
    oldest=SERVICE_CERTS_VERSION,
    commands=SMP.commands.extended(
        smp_commands.CreateNotifyingQueue,
        smp_commands.SubscribeNotificationsAs,
        smp_commands.DisableNotificationsProven,
        smp_commands.DeleteQueueProven,
        smp_commands.RegisterNtfRouter,
        smp_commands.SubscribeNtfRouter,
        AcknowledgeNotifications,
        smp_commands.AssociateQueue,
        smp_commands.SendPacketAgain,
        smp_commands.SetMinimumPriority,
    ),
    responses=SMP.responses.extended(
        smp_responses.NtfRouterRegistered,
        smp_responses.NtfRouterSubscribed,
        smp_responses.NotificationsAcknowledged,
        smp_responses.QueueAssociated,
        smp_responses.PacketStatus,
    ),
)
DIRECT_NTF: Final = replace(
    NTF,
    alpn="ntf+direct/1",
    supported=VersionRange(NTF.batches_from, NTF.supported.highest),
    oldest=NTF.batches_from,
    commands=NTF.commands.extended(ntf_messages.ForwardPacket, AskVapidKey),
    responses=NTF.responses.extended(
        ntf_messages.PacketHandled,
        ntf_messages.TokenRegisteredWithKey,
        ntf_messages.TokenCheckedWithKey,
        SignedVapidKey,
    ),
)


_DIRECT: Final = {SMP.name: DIRECT_SMP, NTF.name: DIRECT_NTF}


def offered_alpn(dialect: Dialect, versions: VersionRange | None = None) -> tuple[str, ...]:
    """The direct form of SMP or NTF first, unless these versions are too old for it."""
    direct = _DIRECT[dialect.name]
    if versions is not None and versions.highest < direct.oldest:
        return (dialect.alpn,)
    return (direct.alpn, dialect.alpn)


def spoken(dialect: Dialect, alpn: str | None) -> Dialect:
    """SMP or NTF, or its direct form if that is what TLS agreed on."""
    direct = _DIRECT[dialect.name]
    return direct if alpn == direct.alpn else dialect


def is_direct(dialect: Dialect) -> bool:
    return dialect is DIRECT_SMP or dialect is DIRECT_NTF
