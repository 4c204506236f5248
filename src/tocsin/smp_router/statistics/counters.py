"""The counters of an SMP router. Their fields give the names and help texts of the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from tocsin.operate.active_queues import ActiveQueues
from tocsin.operate.metrics import counted
from tocsin.protocol.error_codes import ErrorCode, RouterError
from tocsin.protocol.messages import Command
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import (
    DeleteQueue,
    DisableNotifications,
    GetMessage,
    Subscribe,
)
from tocsin.protocol.smp.sender_commands import SendMessage

RelayCount: TypeAlias = Literal[
    "proxy_requests",
    "proxy_sessions",
    "proxy_connect_errors",
    "proxy_version_errors",
    "proxy_other_errors",
    "proxy_forwards",
    "proxy_forwards_answered",
    "proxy_forward_connect_errors",
    "proxy_forward_version_errors",
    "proxy_forward_errors",
]
"""Counters with a second one for the routers of own_server_domains."""


_REFUSED: Final[tuple[tuple[type[Command], str], ...]] = (
    (SendMessage, "messages_refused"),
    (Subscribe, "subscriptions_refused"),
    (GetMessage, "gets_refused"),
    (SubscribeNotifications, "notifier_subscriptions_refused"),
)
_BLOCKS: Final[tuple[tuple[type[Command], str], ...]] = (
    (Subscribe, "subscription_blocks"),
    (DeleteQueue, "deletion_blocks"),
    (SubscribeNotifications, "notifier_subscription_blocks"),
    (DisableNotifications, "notifier_deletion_blocks"),
)


@dataclass(slots=True)
class ServiceCounters:
    """Totals of the services of one role. The first part is in the statistics file (v7.md 5.3, Appendix B)."""

    associations: int = counted("Queues associated with a service for the first time.")
    associations_repeated: int = counted("Queues subscribed to by the service they are associated with.")
    associations_moved: int = counted("Queues that moved from one service to another.")
    associations_removed: int = counted("Queues that an ordinary connection took from a service.")
    repeated: int = counted("Subscriptions of a whole service repeated on its connection.")
    queues: int = counted("Queues of all services at the moment they subscribed.")
    ended: int = counted("Services that lost their subscription to another connection.")

    as_expected: int = counted("Subscriptions whose client expected what is stored, or said nothing.")
    more: int = counted("Subscriptions with more queues stored than the client expected.")
    fewer: int = counted("Subscriptions with fewer queues stored than the client expected.")
    different: int = counted("Subscriptions with the expected number of queues, but others.")
    more_queues: int = counted("Queues stored beyond those that clients expected.")
    fewer_queues: int = counted("Queues that clients expected and that are not stored.")
    queues_with_messages: int = counted("Queues with a message when their service subscribed.")
    messages_already_delivered: int = counted(
        "Queues whose message the service's connection had already when the service subscribed."
    )


@dataclass(slots=True)
class NameCounters:
    """Totals of RSLV (v7.md 5.3)."""

    requests: int = counted("Names that clients asked to resolve.")
    resolved: int = counted("Names that were resolved.")
    not_found: int = counted("Names that the resolver does not know.")
    resolver_errors: int = counted("Names that could not be resolved because of the resolver.")
    disabled: int = counted("Requests refused because no resolver is configured.")


@dataclass(slots=True)
class SmpCounters:
    """Totals that only grow. One object for a router, changed in its event loop only."""

    connections: int = counted("Connections whose handshakes succeeded.")
    connections_refused: int = counted("Connections whose SMP handshake failed or took too long.")
    connections_inactive: int = counted("Connections closed because they were silent for too long.")
    connections_without_store: int = counted("Connections closed because the store had trouble for too long.")
    connections_behind: int = counted("Connections closed because too many END and DELD waited for them.")
    blocks_received: int = counted("Blocks read from clients.")
    commands: int = counted("Commands received, of any kind.")
    command_errors: int = counted("Commands refused before execution because of syntax or credentials.")
    auth_failures: int = counted("Commands answered with AUTH.")

    queues_created: int = counted("Queues created by NEW.")
    queues_refused: int = counted("NEW refused because of max_queues.")
    queues_secured: int = counted("Queues secured by KEY or SKEY.")
    queues_suspended: int = counted("Queues switched off by OFF.")
    queues_deleted: int = counted("Queues deleted by DEL or by the operator.")
    queues_deleted_secured: int = counted("Those of the deleted queues that were secured.")
    queues_deleted_new: int = counted("Those of the deleted queues that were not secured.")
    deletion_blocks: int = counted("Blocks of commands with a DEL.")
    queues_blocked: int = counted("Queues blocked by the operator.")
    links_set: int = counted("Short link data set by NEW or LSET.")
    links_read: int = counted("Short link data read by LKEY or LGET.")

    subscriptions: int = counted("Queues subscribed to by SUB.")
    subscriptions_repeated: int = counted("SUB of queues to which the connection was subscribed.")
    subscriptions_refused: int = counted("SUB answered with AUTH.")
    subscriptions_prohibited: int = counted("SUB refused because the connection had used GET.")
    subscription_blocks: int = counted("Blocks of commands with a SUB.")
    service_subscriptions: int = counted("Services subscribed to their queues by SUBS.")
    subscriptions_taken_over: int = counted("Subscriptions that moved to another connection.")
    ends_sent: int = counted("END, ENDS and DELD events sent.")
    end_blocks: int = counted("Blocks of END, ENDS and DELD events sent.")
    services_registered: int = counted("Services stored because a queue was associated with them.")
    services_forgotten: int = counted(
        "Services without queues that were forgotten because there were too many."
    )
    services_removed: int = counted("Stored services that were removed because they had lost all queues.")
    services_refused: int = counted(
        "Handshakes of new services that were refused because too many are stored."
    )

    messages_sent: int = counted("Messages accepted by SEND.")
    messages_over_quota: int = counted("Messages refused because the queue was full.")
    messages_too_large: int = counted("Messages refused because of their size.")
    messages_refused: int = counted("Messages answered with AUTH.")
    messages_to_blocked_queues: int = counted("Messages refused because the operator blocked the queue.")
    messages_delivered: int = counted("MSG sent, repetitions included.")
    messages_received: int = counted("Messages acknowledged by ACK.")
    messages_received_by_get: int = counted("Those of the acknowledged messages that GET had fetched.")
    messages_fetched: int = counted("Messages delivered as answer to GET.")
    gets_repeated: int = counted("GET answered with a message that the connection had got already.")
    gets_without_message: int = counted("GET of queues without a message.")
    gets_refused: int = counted("GET answered with AUTH.")
    gets_prohibited: int = counted("GET refused because the connection was subscribed to the queue.")
    messages_expired: int = counted("Messages removed because nobody fetched them in time.")
    messages_with_notification: int = counted("Messages accepted by SEND with the notification flag.")
    messages_received_with_notification: int = counted(
        "Acknowledged messages that had the notification flag."
    )

    notifiers_created: int = counted("Notifier credentials set by NEW or NKEY.")
    notifiers_created_by_new: int = counted("Notifier credentials set by NEW.")
    notifiers_deleted: int = counted("Notifier credentials removed by NDEL or replaced by NKEY.")
    notifier_deletion_blocks: int = counted("Blocks of commands with an NDEL.")
    notifier_subscriptions: int = counted("Notifiers subscribed to by NSUB.")
    notifier_subscriptions_repeated: int = counted(
        "NSUB of notifiers to which the connection was subscribed."
    )
    notifier_subscriptions_refused: int = counted("NSUB answered with AUTH.")
    notifier_subscription_blocks: int = counted("Blocks of commands with an NSUB.")
    notifier_service_subscriptions: int = counted("Subscriptions of a whole service by NSUBS.")
    notifications_enqueued: int = counted("Notifications put into the store.")
    notifications_without_subscriber: int = counted(
        "Notifications stored while nobody was subscribed to their notifier."
    )
    notifications_sent: int = counted("NMSG written to a connection, repetitions included.")
    notification_blocks: int = counted("Blocks of NMSG written to a connection.")
    notifications_confirmed: int = counted("Notifications removed because the subscriber has them.")
    notifications_repeated: int = counted(
        "NMSG sent again because a connection broke before they were confirmed."
    )
    notifications_over_quota: int = counted(
        "Notifications removed because newer ones of their queue need their place."
    )
    notifications_expired: int = counted("Notifications removed because nobody fetched them in time.")
    notification_passes: int = counted("Delivery passes that found something to deliver.")

    notifications_held_back: int = counted(
        "Messages that caused no notification because the recipient wants more important ones only."
    )

    ntf_routers_registered: int = counted("NTF routers that registered by NSRV for the first time.")
    ntf_router_subscriptions: int = counted("Subscriptions of a whole NTF router by NSSUB.")
    queues_associated: int = counted("Queues associated with an NTF router that accepted a packet.")
    packets_kept: int = counted("Packets of clients taken to be forwarded to NTF routers.")
    packets_over_limit: int = counted("Commands refused because too many packets wait.")
    packets_accepted: int = counted("Packets that NTF routers accepted.")
    packets_unknown_key: int = counted("Packets that NTF routers could not open.")
    packets_bad_token: int = counted("Packets that NTF routers refused because of the token.")
    packets_bad_queue: int = counted("Packets that NTF routers refused because of the queue.")
    packets_unsupported: int = counted("Packets to NTF routers that do not know direct notifications.")
    packets_dropped: int = counted("Packets given up: too old, or no room for them.")
    packet_attempts_failed: int = counted("Attempts to forward packets that are repeated later.")

    proxy_requests: int = counted("PRXY commands: sessions with other routers asked for.")
    proxy_requests_own: int = counted("PRXY commands for routers of own_server_domains.")
    proxy_sessions: int = counted("PRXY commands answered with a session.")
    proxy_sessions_own: int = counted("PRXY commands for own routers answered with a session.")
    proxy_relays_connected: int = counted("Connections made to other routers.")
    proxy_relays_closed_idle: int = counted("Connections to other routers closed because nobody used them.")
    proxy_relays_evicted: int = counted("Connections to other routers closed to make room for another.")
    proxy_relays_refused: int = counted("PRXY commands refused because all connections were in use.")
    proxy_connect_errors: int = counted("PRXY commands that failed to reach the other router.")
    proxy_connect_errors_own: int = counted(
        "PRXY commands that failed to reach one of the operator's own routers."
    )
    proxy_version_errors: int = counted("PRXY commands for routers without a version in common.")
    proxy_version_errors_own: int = counted("PRXY commands for own routers without a version in common.")
    proxy_other_errors: int = counted("PRXY commands that failed for another reason.")
    proxy_other_errors_own: int = counted("PRXY commands for own routers that failed for another reason.")
    proxy_forwards: int = counted("PFWD commands forwarded to other routers.")
    proxy_forwards_own: int = counted("PFWD commands forwarded to routers of own_server_domains.")
    proxy_forwards_answered: int = counted("PFWD commands that the other router answered.")
    proxy_forwards_answered_own: int = counted(
        "PFWD commands that one of the operator's own routers answered."
    )
    proxy_forward_connect_errors: int = counted("PFWD commands whose connection was lost.")
    proxy_forward_connect_errors_own: int = counted(
        "PFWD commands whose connection to one of the operator's own routers was lost."
    )
    proxy_forward_version_errors: int = counted("PFWD commands that failed because of the version.")
    proxy_forward_version_errors_own: int = counted(
        "PFWD commands to own routers that failed because of the version."
    )
    proxy_forward_errors: int = counted("PFWD commands that failed for another reason.")
    proxy_forward_errors_own: int = counted("PFWD commands to own routers that failed for another reason.")
    relayed_commands: int = counted("RFWD commands: commands that came through another router.")

    events_lost: int = counted("Delivery events that could not be recorded.")

    rcv_services: ServiceCounters = field(default_factory=ServiceCounters)
    """Services that receive messages."""
    ntf_services: ServiceCounters = field(default_factory=ServiceCounters)
    """Services that receive notifications."""
    names: NameCounters = field(default_factory=NameCounters)
    active: ActiveQueues = field(default_factory=ActiveQueues)

    def services(self, role: ServiceRole) -> ServiceCounters:
        return self.rcv_services if role is ServiceRole.MESSAGING else self.ntf_services

    def count_relay(self, name: RelayCount, *, own: bool) -> None:
        """Count something about another router; the operator's own routers have a separate counter as well."""
        setattr(self, name, getattr(self, name) + 1)
        if own:
            setattr(self, f"{name}_own", getattr(self, f"{name}_own") + 1)

    def lose_events(self, count: int) -> None:
        self.events_lost += count


def count_refusal(counters: SmpCounters, command: Command, error: RouterError) -> None:
    """Count a command that was refused before it was executed."""
    if error is not ErrorCode.AUTH:
        return
    counters.auth_failures += 1
    for kind, name in _REFUSED:
        if isinstance(command, kind):
            _count(counters, name)


def count_block(counters: SmpCounters, commands: Iterable[Command]) -> None:
    """Count the kinds of commands in a block, each once."""
    kinds = {type(command) for command in commands}
    for kind, name in _BLOCKS:
        if any(issubclass(each, kind) for each in kinds):
            _count(counters, name)


def _count(counters: Any, name: str) -> None:
    setattr(counters, name, getattr(counters, name) + 1)
