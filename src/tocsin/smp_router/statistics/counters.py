"""The counters of an SMP router. Their fields give the names and help texts of the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from tocsin.operate.active_queues import ActiveQueues
from tocsin.operate.metrics import counted


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
    queues_blocked: int = counted("Queues blocked by the operator.")
    links_set: int = counted("Short link data set by NEW or LSET.")
    links_read: int = counted("Short link data read by LKEY or LGET.")

    subscriptions: int = counted("Queues subscribed to by SUB.")
    service_subscriptions: int = counted("Services subscribed to their queues by SUBS.")
    subscriptions_taken_over: int = counted("Subscriptions that moved to another connection.")
    ends_sent: int = counted("END, ENDS and DELD events sent.")
    services_registered: int = counted("Services stored because a queue was associated with them.")
    services_forgotten: int = counted(
        "Services without queues that were forgotten because there were too many."
    )
    services_refused: int = counted(
        "Handshakes of new services that were refused because too many are stored."
    )

    messages_sent: int = counted("Messages accepted by SEND.")
    messages_over_quota: int = counted("Messages refused because the queue was full.")
    messages_too_large: int = counted("Messages refused because of their size.")
    messages_delivered: int = counted("MSG sent, repetitions included.")
    messages_received: int = counted("Messages acknowledged by ACK.")
    messages_fetched: int = counted("Messages delivered as answer to GET.")
    messages_expired: int = counted("Messages removed because nobody fetched them in time.")
    messages_with_notification: int = counted("Messages accepted by SEND with the notification flag.")
    messages_received_with_notification: int = counted(
        "Acknowledged messages that had the notification flag."
    )

    notifiers_created: int = counted("Notifier credentials set by NEW or NKEY.")
    notifiers_deleted: int = counted("Notifier credentials removed by NDEL or replaced by NKEY.")
    notifier_subscriptions: int = counted("Notifiers subscribed to by NSUB.")
    notifier_service_subscriptions: int = counted("Subscriptions of a whole service by NSUBS.")
    notifications_enqueued: int = counted("Notifications put into the store.")
    notifications_sent: int = counted("NMSG written to a connection, repetitions included.")
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
    proxy_requests_own: int = counted("PRXY commands for routers of own_server_domains that were reached.")
    proxy_relays_connected: int = counted("Connections made to other routers.")
    proxy_relays_closed_idle: int = counted("Connections to other routers closed because nobody used them.")
    proxy_relays_evicted: int = counted("Connections to other routers closed to make room for another.")
    proxy_relays_refused: int = counted("PRXY commands refused because all connections were in use.")
    proxy_connect_errors: int = counted("PRXY commands that failed to reach the other router.")
    proxy_forwards: int = counted("PFWD commands forwarded to other routers.")
    proxy_forwards_own: int = counted("PFWD commands forwarded to routers of own_server_domains.")
    proxy_forward_errors: int = counted("PFWD commands that failed on the way.")
    relayed_commands: int = counted("RFWD commands: commands that came through another router.")

    events_lost: int = counted("Delivery events that could not be recorded.")

    active: ActiveQueues = field(default_factory=ActiveQueues)

    def lose_events(self, count: int) -> None:
        self.events_lost += count
