"""Commands of the NTF router (smp.md 6.3, 8.5, 8.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tocsin.protocol.messages import Command, ServiceSigning
from tocsin.protocol.smp.service_subscriptions import SubscribesService


@dataclass(frozen=True, slots=True)
class SubscribeNotifications(Command):
    """NSUB: receive the notifications of one queue on this connection."""

    tag: ClassVar[bytes] = b"NSUB"
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.BESIDE


@dataclass(frozen=True, slots=True)
class SubscribeServiceNotifications(SubscribesService):
    """NSUBS: receive the notifications of all queues associated with this service."""

    tag: ClassVar[bytes] = b"NSUBS"
    service_signing: ClassVar[ServiceSigning] = ServiceSigning.ALONE
