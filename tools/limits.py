"""Every limit of the two routers: what it bounds, its default, its metric, and what happens beyond it.

`tools.reference_pages` makes docs/reference/limits.md from it. A test floods both routers and finds no collection that
grew and is not named here, or that is larger than its limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from tocsin.durable.postgres import notices
from tocsin.ntf_router import router as ntf_router
from tocsin.ntf_router.fleet import shared_pushes, smp_reach
from tocsin.ntf_router.session import rates
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.statistics import counters
from tocsin.ntf_router.subscriber import notifications, queue_subscriptions, router_addresses
from tocsin.operate import active_queues
from tocsin.protocol import addresses, authorization
from tocsin.push.http2 import connection, push_provider
from tocsin.push.webpush import client as webpush_client
from tocsin.push.webpush import host_lane
from tocsin.smp_router import router as smp_router
from tocsin.smp_router import unconfirmed
from tocsin.smp_router.direct import packet_outbox
from tocsin.smp_router.names import resolver as name_resolver
from tocsin.smp_router.session import peers, service_records
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.transport import block_connection, listener, resolver, tls_handshake, turns
from tocsin.wire.batches import MAX_ITEMS


class Scope(StrEnum):
    CONNECTION = "connection"
    QUEUE = "queue"
    TOKEN = "device token"
    HOST = "host or domain"
    PORT = "port"
    ROUTER = "router"
    PROVIDER = "push provider"


@dataclass(frozen=True, slots=True)
class Limit:
    """One row of the table."""

    what: str
    scope: Scope
    default: str
    beyond: str
    setting: str = ""
    """The key in the settings file; without one the limit is a constant of the code."""
    metrics: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    """`Class.attribute` of what is bounded."""
    bound: Callable[[Any], float] | None = None
    """The largest size of these collections, from the router's settings."""


def _shown(value: object) -> str:
    if isinstance(value, float):
        days, rest = divmod(value, 86_400)
        return f"{days:g} days" if days > 1 and not rest else f"{value:,g} s"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _set(
    settings: object, name: str, what: str, scope: Scope, beyond: str, *collections: str, **more: Any
) -> Limit:
    """A limit that is a setting. `name` is the field; the key of a nested field is its path joined by `_`."""
    field = attrgetter(name)
    more.setdefault("setting", name.replace(".", "_"))
    bound = more.pop("bound", field)
    return Limit(what, scope, _shown(field(settings)), beyond, collections=collections, bound=bound, **more)


def _fixed(value: float, what: str, scope: Scope, beyond: str, *collections: str, **more: Any) -> Limit:
    """A limit that is a constant."""
    bound = more.pop("bound", lambda _settings: value)
    return Limit(what, scope, _shown(value), beyond, collections=collections, bound=bound, **more)


def _common(settings: Any, prefix: str) -> tuple[Limit, ...]:
    """Limits of the connections of both routers."""
    metric = f"{prefix}_listener_"
    return (
        _set(
            *(settings, "max_connections", "Connections", Scope.PORT, "a new one is closed at once"),
            *("Listener._connections", "Listener._stuck"),
            metrics=(f"{metric}refused",),
        ),
        _fixed(
            listener.DEFAULT_MAX_HANDSHAKES,
            *("TLS handshakes in progress", Scope.PORT, "the oldest is dropped for a new one"),
            "Listener._handshakes",
            metrics=(f"{metric}handshakes_dropped",),
        ),
        _fixed(
            tls_handshake.STEPS_PER_ITERATION,
            *("Steps of TLS handshakes before others get their turn", Scope.PORT, "the others wait"),
        ),
        _set(
            *(settings, "max_connections", "Connections and handshakes being served", Scope.PORT),
            *("as the two rows above", "Listener._serving"),
            bound=lambda chosen: chosen.max_connections + listener.DEFAULT_MAX_HANDSHAKES,
        ),
        _set(
            *(settings, "tls_handshake_seconds", "Time of a TLS handshake", Scope.CONNECTION),
            "the connection is closed",
            metrics=(f"{metric}handshake_timed_out",),
        ),
        _set(
            *(settings, "hello_seconds", "Time of the hellos", Scope.CONNECTION, "the connection is closed"),
            metrics=(
                f"{'smp_connections_refused_total' if prefix == 'smp' else prefix + '_connections_refused'}",
            ),
        ),
        _set(
            *(settings, "write_queue_blocks", "Blocks that wait for a client", Scope.CONNECTION),
            *("the client's commands wait; events for it stay in the store", "OutgoingBlocks._queue"),
        ),
        _set(
            *(settings, "write_stall_seconds", "Time without progress while blocks wait for a client"),
            *(Scope.CONNECTION, "the connection is closed"),
            metrics=(f"{metric}stalled",),
        ),
        _set(
            *(settings, "max_waiting_bytes", "Bytes that wait for clients which do not read", Scope.PORT),
            "the clients that have stood still for longest are closed",
            metrics=(f"{metric}over_budget", f"{metric}waiting_bytes"),
        ),
        _fixed(
            block_connection.DEFAULT_READ_LIMIT_BYTES,
            *("Bytes that were received and not executed", Scope.CONNECTION, "the client is not read"),
            "BlockConnection._inbox",
        ),
        _fixed(
            turns.SLICE_SECONDS,
            *("CPU time in a row", Scope.CONNECTION, "the connection waits for the others"),
            "Turns._line",
            metrics=(f"{prefix}_turns_waited", f"{prefix}_turns_waiting"),
            bound=lambda chosen: 3 * chosen.max_connections,
        ),
        _fixed(
            authorization.MAX_AGREED_KEYS,
            *("Agreed keys of X25519 authorizations", Scope.CONNECTION, "the oldest is dropped"),
            "AgreedKeys._keys",
        ),
        _fixed(MAX_ITEMS, "Commands in a block", Scope.CONNECTION, "`ERR BLOCK`"),
        _fixed(
            resolver.MAX_LOOKUPS,
            *("Names being resolved", Scope.ROUTER, "others wait in line"),
            *("Resolver._running",),
        ),
        _fixed(
            resolver.MAX_LOOKUPS_OF_DOMAIN,
            *("Names of one domain being resolved", Scope.HOST, "others wait in line"),
        ),
        _fixed(
            resolver.MAX_WAITING,
            *("Names that wait to be resolved", Scope.ROUTER, "the name cannot be resolved"),
            *("Resolver._line", "Resolver._under_way"),
            bound=lambda _chosen: resolver.MAX_WAITING + resolver.MAX_LOOKUPS,
        ),
        _fixed(
            resolver.MAX_ANSWERS,
            *("Addresses of names that are kept", Scope.ROUTER, "the one unused for longest is forgotten"),
            "Resolver._answers",
        ),
        _fixed(
            active_queues.MAX_COUNTED,
            *("Queues counted in the statistics of a month", Scope.ROUTER, "further ones are not counted"),
            *("UsedQueues._last_used",),
        ),
        _fixed(
            addresses.MAX_HOSTS_CHARACTERS,
            *("Characters of the hosts of a router's address", Scope.HOST, "`CMD SYNTAX`"),
        ),
    )


_SMP: Final = SmpSettings()
_NTF: Final = NtfSettings()
_QUEUES: Final = attrgetter("max_queues")

SMP_LIMITS: Final = (
    *_common(_SMP, "smp"),
    _set(
        *(_SMP, "max_connections", "State of connections", Scope.ROUTER, "as Connections, for all ports"),
        *("SmpRouter.peers", "PeerSubscriptions._services", "NotificationDelivery._unconfirmed"),
        *("NotificationDelivery._by_peer", "PeerSubscriptions.with_late_events"),
        *("PeerSubscriptions.with_undelivered", "PeerSubscriptions.services_received_anew"),
        "PeerSubscriptions._messaging_services",
        bound=lambda chosen: chosen.max_connections * len(chosen.ports),
    ),
    _set(
        *(_SMP, "max_queues", "Queues", Scope.ROUTER, "`NEW` is answered with `ERR QUOTA`"),
        *("QueueIndex._queues", "QueueIndex._by_sender", "QueueIndex._by_notifier", "QueueIndex._by_link"),
        *("SmpMemoryStore._messages", "SmpMemoryStore._notifications", "SmpDirectTable._minimums"),
        *("PeerSubscriptions._recipients", "PeerSubscriptions._notifiers"),
        *("PeerSubscriptions.notifiers_received_anew", "NotificationDelivery._due"),
        *("NotificationDelivery._by_peer[]", "NotificationDelivery._out_of_order", "SmpState.sent_nonces"),
        *("NotificationDelivery._nonces", "NotificationDelivery._sent_to"),
        *("Peer.deliveries", "Peer.notifiers", "Peer.undelivered"),
        *("QueueIndex._associated", "QueueIndex._of_service", "QueueIndex._of_service[]"),
        metrics=("smp_queues_refused_total", "smp_queues"),
        bound=_QUEUES,
    ),
    _set(
        *(_SMP, "message_quota", "Messages", Scope.QUEUE, "`ERR QUOTA`, until all are read"),
        "SmpMemoryStore._messages[]",
        metrics=("smp_messages_over_quota_total",),
        bound=lambda chosen: chosen.message_quota + 1,
    ),
    _set(
        *(_SMP, "message_ttl", "Age of a message", Scope.QUEUE, "it is removed"),
        metrics=("smp_messages_expired_total",),
    ),
    _set(
        *(_SMP, "notification_quota", "Stored notifications (at least `message_quota`)", Scope.QUEUE),
        *("the oldest is removed, with the outcome dropped", "SmpMemoryStore._notifications[]"),
        *("SmpState.sent_nonces[]", "NotificationDelivery._nonces[]"),
        metrics=("smp_notifications_over_quota_total",),
        bound=lambda chosen: max(chosen.notification_quota, chosen.message_quota),
    ),
    _set(
        *(_SMP, "notification_quota", "Notifications that were sent and not confirmed", Scope.ROUTER),
        *("as stored notifications, of all queues", "NotificationDelivery._once_more"),
        *("UntilArrived._batches", "_Batch.sent"),
        *("SmpMemoryStore._undurable", "SmpMemoryStore._undurable_nonces"),
        bound=lambda chosen: chosen.max_queues * max(chosen.notification_quota, chosen.message_quota),
    ),
    _fixed(
        unconfirmed.MOST_UNACKNOWLEDGED,
        *("Notifications that wait for `NRCV`", Scope.CONNECTION, "others wait in the store"),
        "UntilAcknowledged._sent",
        bound=lambda _chosen: unconfirmed.MOST_UNACKNOWLEDGED + MAX_ITEMS,
    ),
    _set(
        *(_SMP, "notification_ttl", "Age of a notification", Scope.QUEUE, "it is removed"),
        metrics=("smp_notifications_expired_total",),
    ),
    _fixed(
        peers.MAX_LATE_EVENTS,
        *("END, ENDS and DELD that wait for a client", Scope.CONNECTION, "the connection is closed"),
        "Peer.late_events",
        metrics=("smp_connections_behind_total",),
    ),
    _fixed(
        smp_router.ANSWERS_WAITING,
        *("Blocks whose answers wait for the disk", Scope.CONNECTION, "the client is not read"),
    ),
    _fixed(
        smp_router.ANSWER_BYTES_WAITING,
        *("Bytes of answers that wait for the disk", Scope.CONNECTION, "the client is not read"),
    ),
    _fixed(
        service_records.MAX_UNSTORED,
        *("Services without queues", Scope.ROUTER, "the oldest is forgotten"),
        "SmpState.unstored_services",
        metrics=("smp_services_forgotten_total",),
    ),
    _fixed(
        service_records.MAX_STORED,
        *("Services with queues", Scope.ROUTER, "a new service is refused: `HANDSHAKE BAD_SERVICE`"),
        *("SmpMemoryStore._services", "SmpMemoryStore._services_by_fingerprint", "SmpDirectTable._routers"),
        "EmptyServices._found",
        metrics=("smp_services_refused_total",),
    ),
    _set(
        *(_SMP, "proxy.client_concurrency", "Commands being forwarded", Scope.CONNECTION),
        "the client is not read",
        setting="client_concurrency",
    ),
    _set(
        *(_SMP, "names.concurrency", "Names being resolved", Scope.CONNECTION),
        "`NAME RESOLVER resolver error`",
        setting="resolver_concurrency",
        metrics=("simplex_smp_names_resolver_errs",),
    ),
    _fixed(
        name_resolver.MAX_AT_ONCE,
        *("Requests at the resolver of names", Scope.ROUTER, "others wait, until `NAME RESOLVER timeout`"),
        metrics=("simplex_smp_names_resolver_errs",),
    ),
    _set(
        *(_SMP, "names.max_response_bytes", "Bytes of the record of a name", Scope.ROUTER),
        "`NAME RESOLVER response too large`",
        setting="resolver_max_response_bytes",
    ),
    _set(
        *(_SMP, "proxy.client_connects", "Routers being connected for a client", Scope.CONNECTION),
        "further requests of the client wait",
    ),
    _set(
        *(_SMP, "proxy.max_relays", "Connections to other routers", Scope.ROUTER),
        "the one unused for longest is closed; while all are in use, `PROXY BROKER NETWORK`",
        *("Relays._relays", "Relays._by_session", "Relays._failures", "Relays._tasks"),
        metrics=("smp_proxy_relays_evicted_total", "smp_proxy_relays_refused_total"),
    ),
    _set(
        *(_SMP, "direct.max_packets", "Packets that wait for NTF routers", Scope.ROUTER, "`ERR QUOTA`"),
        *("SmpDirectTable._packets", "SmpDirectTable._packet_of", "SmpDirectTable._counts"),
        *("NtfForwarding._lines", "NtfForwarding._tasks", "PacketOutbox._waiters"),
        metrics=("smp_packets_over_limit_total", "smp_packets_waiting"),
    ),
    _set(
        *(_SMP, "direct.max_packets_per_router", "Packets that wait for one NTF router", Scope.HOST),
        *("`ERR QUOTA`", "PacketLine._packets"),
        metrics=("smp_packets_over_limit_total",),
    ),
    _set(
        *(_SMP, "direct.max_ntf_routers", "Connections to NTF routers", Scope.ROUTER, "others wait"),
        metrics=("smp_ntf_router_connections",),
    ),
    _fixed(
        packet_outbox.REMEMBERED_REFUSALS,
        *("Refusals of NTF routers that are remembered", Scope.ROUTER, "the oldest is forgotten"),
        "PacketOutbox._refusals",
    ),
)

NTF_LIMITS: Final = (
    *_common(_NTF, "simplex_ntf"),
    _set(
        *(_NTF, "max_connections", "State of connections", Scope.ROUTER, "as Connections, for all ports"),
        "NtfRouter.connections",
        bound=lambda chosen: chosen.max_connections * len(chosen.ports),
    ),
    _fixed(
        ntf_router.BLOCKS_WAITING,
        *("Verified blocks that wait to be executed", Scope.CONNECTION, "the client is not read"),
    ),
    _set(
        *(_NTF, "subscriber.routers_per_token", "Different SMP routers", Scope.TOKEN, "`SNEW` is refused"),
        setting="routers_per_token",
        bound=None,
    ),
    _set(
        *(_NTF, "delivery.other_pushes", "Verification and periodic pushes that wait", Scope.PROVIDER),
        *("the oldest is shed", "ControlPushes._waiting", "ControlPushes._resting", "ControlPushes._sent"),
        setting="other_pushes",
        metrics=("simplex_ntf_pushes_shed",),
    ),
    _set(
        *(_NTF, "max_tokens", "Device tokens and pushes that are to be tried again", Scope.PROVIDER),
        *("as the rows of tokens and of waiting pushes", "RetrySchedule._later"),
        bound=lambda chosen: chosen.max_tokens + chosen.delivery.other_pushes,
    ),
    _fixed(
        connection.MOST_STREAMS,
        *("Pushes without an answer (APNs, FCM)", Scope.CONNECTION, "further ones wait for a connection"),
        "Streams.exchanges",
    ),
    _fixed(
        push_provider.WAITING_LIMIT,
        *("Pushes that wait for a connection (APNs, FCM)", Scope.PROVIDER),
        *("they stay in the store, and the delivery tries again", "Http2PushProvider._waiting"),
    ),
    _set(
        *(_NTF, "fcm.connections", "Pushes that wait for Google's access token", Scope.PROVIDER),
        *("they stay in the store, and the delivery tries again", "FcmProvider._unauthorized"),
        bound=lambda chosen: chosen.fcm.connections * connection.MOST_STREAMS,
    ),
    _set(
        *(_NTF, "webpush.hosts", "Web Push services that are connected", Scope.PROVIDER),
        *("an idle one is closed; while all are busy, the push is tried later", "WebPushProvider._lanes"),
    ),
    _set(
        *(_NTF, "webpush.connections", "Connections to a Web Push service", Scope.HOST),
        *("pushes wait for the others", "HostLane._workers", "HostLane._idle"),
    ),
    _set(
        *(_NTF, "webpush.connections", "Connections to all Web Push services", Scope.PROVIDER),
        *("as the two rows above", "WebPushProvider._tasks"),
        bound=lambda chosen: chosen.webpush.hosts * chosen.webpush.connections,
    ),
    _fixed(
        host_lane.QUEUE_LIMIT,
        *("Pushes that wait for a Web Push service", Scope.HOST, "the push is tried later"),
        "HostLane._waiting",
    ),
    _set(*(_NTF, "webpush.rate", "Pushes to a Web Push service in a second", Scope.HOST), "tried later"),
    _fixed(
        webpush_client.MOST_ADDRESSES,
        *(
            "Web Push device tokens in parsed form",
            Scope.PROVIDER,
            "the one not used for longest is parsed again",
        ),
    ),
    _fixed(
        host_lane.MOST_HOSTS,
        *("Web Push services whose behaviour is remembered", Scope.PROVIDER, "the oldest is forgotten"),
        *("Reputations._proven", "Reputations._outages"),
    ),
    _set(
        *(_NTF, "registrations_per_connection", "`TNEW` and `TRPL` at once", Scope.CONNECTION),
        "`ERR QUOTA`, until the next `registration_interval`",
        metrics=("simplex_ntf_registrations_refused",),
    ),
    _set(
        *(_NTF, "registrations_per_device", "Unverified registrations in a day", Scope.TOKEN, "`ERR QUOTA`"),
        metrics=("simplex_ntf_registrations_refused",),
    ),
    _fixed(
        rates.MOST_PARTIES,
        *("Device tokens whose rate is remembered", Scope.ROUTER, "the one used longest ago is forgotten"),
        "RateTable._rates",
    ),
    _set(
        *(_NTF, "subscriber.untried_per_token", "SMP routers that never answered", Scope.TOKEN),
        "`SNEW` is refused with `QUOTA`",
        setting="untried_routers_per_token",
        bound=None,
        metrics=("simplex_ntf_subscriptions_refused",),
    ),
    _fixed(
        router_addresses.MOST_ADDRESSES,
        *("Addresses of one SMP router that are tried", Scope.HOST),
        *(
            "the one that failed most often is forgotten",
            "RouterAddresses._known",
            "RouterAddresses._attempts",
        ),
    ),
    _fixed(
        queue_subscriptions.NEW_QUEUES,
        *("Queues of one SMP router that were answered with `SERVICE` once", Scope.HOST),
        *("all of them are forgotten, and asked once more", "QueueSubscriptions._service_refused"),
    ),
    _fixed(
        queue_subscriptions.NEW_QUEUES,
        *(
            "Queues of one SMP router that another instance of a fleet took late, and that were taken back",
            Scope.HOST,
        ),
        *("all of them are forgotten, and may be taken back once more", "QueueSubscriptions._taken_back"),
    ),
    _fixed(
        smp_reach.LOSSES.burst,
        *("Losses of one SMP router that an instance tells the others of its fleet at once", Scope.HOST),
        f"one in {smp_reach.LOSSES.interval:g} s is told; else the others try it with growing delays",
    ),
    _fixed(
        notices.MOST_WAITING,
        *("Notices to other instances of a fleet that wait", Scope.ROUTER),
        *("further ones are dropped, and the others find out by themselves", "Notices._waiting"),
    ),
    _fixed(
        shared_pushes.MOST_CODES,
        *("Codes that another instance of a fleet was told to push, of late", Scope.ROUTER),
        *("the oldest are not told again if that instance is gone", "SharedPushes._codes"),
    ),
    _fixed(
        notifications.MOST_RECENT,
        *("Notifications that are recognised when they come again", Scope.HOST),
        *("the older half is forgotten", "RecentNotifications._newer", "RecentNotifications._older"),
        bound=lambda _settings: notifications.MOST_RECENT + MAX_ITEMS,
    ),
    _set(
        *(_NTF, "max_tokens", "Device tokens", Scope.ROUTER),
        "`TNEW` of a new one is answered with `ERR QUOTA`; from three quarters on, registrations that nobody verified "
        "for a day are removed",
        *("TokenTable._numbers", "TokenTable._registrations", "TokenTable._tokens"),
        metrics=(
            *("simplex_ntf_tokens_over_limit", "simplex_ntf_tokens_never_verified"),
            "simplex_ntf_tokens_total",
        ),
    ),
    _set(
        *(_NTF, "max_subscriptions", "Subscriptions", Scope.ROUTER),
        *("`SNEW` of a new one is answered with `ERR QUOTA`, a packet with the fate `Q`",),
        *("RowBlocks._routers", "SubscribedRouters._numbers", "SubscribedRouters._routers"),
        *("SubscribedRouters._addresses", "SubscriptionTable.router_of", "KeptRouter.addresses"),
        *("SmpSubscribers._tasks", "SmpSubscribers._by_identity", "SmpSubscribers._untried"),
        *("SmpSubscribers._named_by", "SmpSubscribers._runs"),
        metrics=("simplex_ntf_subscriptions_over_limit", "simplex_ntf_subscriptions_approx_total"),
    ),
    _set(
        *(_NTF, "max_subscriptions_per_token", "Subscriptions", Scope.TOKEN),
        "`SNEW` of a new one is answered with `ERR QUOTA`, a packet with the fate `Q`",
        *("KeptToken.last",),
        metrics=("simplex_ntf_subscriptions_over_token_limit",),
    ),
    _fixed(
        counters.MOST_SEEN,
        *("Tokens and queues that are known to be counted today", Scope.ROUTER, "all of them are forgotten"),
        "ActiveTokens._seen",
        bound=lambda _settings: counters.MOST_SEEN + 2,
    ),
)


def limit_of(limits: tuple[Limit, ...], collection: str) -> Limit | None:
    """Return the row that names a collection."""
    return next((limit for limit in limits if collection in limit.collections), None)
