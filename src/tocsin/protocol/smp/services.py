"""Rules of service sessions: allowed commands, and signatures of the session key (smp.md 5.4)."""

from __future__ import annotations

from typing import Final, assert_never

from tocsin.protocol.error_codes import CommandFault, ErrorCode, RouterError
from tocsin.protocol.messages import Command, ServiceSigning
from tocsin.protocol.ping import Ping
from tocsin.protocol.sessions import ReceivedCommand, ServicePeer, ServiceRole
from tocsin.protocol.smp.notifier_commands import (
    AcknowledgeNotifications,
    SubscribeNotifications,
    SubscribeServiceNotifications,
)
from tocsin.protocol.smp.proxy_commands import RelayForwarded

_NOT_FOR_MESSAGING: Final = (
    SubscribeNotifications,
    SubscribeServiceNotifications,
    AcknowledgeNotifications,
    RelayForwarded,
)
_FOR_NOTIFIER: Final = (SubscribeNotifications, SubscribeServiceNotifications, AcknowledgeNotifications, Ping)
_FOR_PROXY: Final = (RelayForwarded, Ping)


def role_allows(role: ServiceRole, command: Command) -> bool:
    match role:
        case ServiceRole.MESSAGING:
            return not isinstance(command, _NOT_FOR_MESSAGING)
        case ServiceRole.NOTIFIER:
            return isinstance(command, _FOR_NOTIFIER)
        case ServiceRole.PROXY:
            return isinstance(command, _FOR_PROXY)
        case _:
            assert_never(role)


def service_fault(received: ReceivedCommand, service: ServicePeer | None) -> RouterError | None:
    """Check a service between finding the queue and verifying its key: role first, then its signature."""
    signing = received.command.service_signing
    if service is None:
        if received.service_signature or signing is ServiceSigning.ALONE:
            return ErrorCode.SERVICE
        return None
    if not role_allows(service.role, received.command):
        return CommandFault.PROHIBITED
    if _signed_by_service(received, service, signing):
        return None
    return ErrorCode.SERVICE


def _signed_by_service(received: ReceivedCommand, service: ServicePeer, signing: ServiceSigning) -> bool:
    match signing:
        case ServiceSigning.NEVER:
            return not received.service_signature
        case ServiceSigning.BESIDE:
            return service.session_key.verifies(received.service_signature, received.authorized)
        case ServiceSigning.ALONE:
            own = received.entity_id == service.service_id and not received.service_signature
            return own and service.session_key.verifies(received.auth, received.authorized)
        case _:
            assert_never(signing)
