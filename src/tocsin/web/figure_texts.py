"""Every number on the page: its name, what it means, when it is bad, and what to do then. One table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Level(StrEnum):
    PLAIN = "plain"
    """Neither good nor bad."""
    GOOD = "good"
    LOOK = "look"
    """Worth a look."""
    BAD = "bad"


Judge = Callable[[float], Level]


def plain(_value: float) -> Level:
    return Level.PLAIN


def must_be_zero(value: float) -> Level:
    """Any other number is a bug or a loss."""
    return Level.BAD if value else Level.GOOD


def rarely_above_zero(value: float) -> Level:
    """Any other number has a cause worth knowing."""
    return Level.LOOK if value else Level.GOOD


def below(look: float, bad: float) -> Judge:
    return lambda value: Level.BAD if value >= bad else Level.LOOK if value >= look else Level.GOOD


@dataclass(frozen=True, slots=True)
class FigureText:
    label: str
    meaning: str
    action: str
    """When the number is bad, and what to do then."""
    judge: Judge = plain


FIGURES: Final[dict[str, FigureText]] = {
    # The accounting
    "received": FigureText(
        "received",
        "Notifications that SMP routers sent and this NTF router stored, since its store was created.",
        "Not growing while people write: this router has no subscriptions at SMP routers. See Resubscription.",
    ),
    "tables_received": FigureText(
        "received",
        "Notifications that NTF routers received on these days, according to their event logs. Each counts once.",
        "Not growing while the router's own number does: run tocsin pipeline ingest.",
    ),
    "accepted": FigureText(
        "accepted",
        "Notifications sent in a push that the provider answered with 200.",
        "Far below received, with few superseded: check the provider's answers.",
    ),
    "superseded": FigureText(
        "superseded",
        "Replaced by a newer notification of the same queue before a push left. The device is woken all the same.",
        "More than half of all: pushes wait too long. Check the queue of pushes and the provider's answers.",
    ),
    "failed": FigureText(
        "failed",
        "Given up: the device token is dead, the provider refused for good, or the notification expired.",
        "Dead tokens are normal. For other reasons, check the provider's answers, then the router's log.",
        rarely_above_zero,
    ),
    "shed": FigureText(
        "shed",
        "Dropped because too many were waiting.",
        "Above 0: notifications arrive faster than the provider takes them. Raise the limits, or find out why it is "
        "slow.",
        rarely_above_zero,
    ),
    "pending": FigureText(
        "pending",
        "Stored, with no outcome yet: being sent, or waiting for the provider.",
        "Grows and does not fall: the provider is unreachable or rejects our credentials. Check the router's log.",
        below(1_000, 100_000),
    ),
    "difference": FigureText(
        "difference",
        "received − accepted − superseded − failed − shed − pending. Every notification is one of these.",
        "Not 0: a bug or a loss. Keep the store as it is, run tocsin pipeline explain, and report it.",
        must_be_zero,
    ),
    "overdue": FigureText(
        "overdue",
        "Received an hour ago or earlier, and without an outcome, at the last tocsin pipeline report --check.",
        "Not 0: is the NTF router running, and does it reach the provider? tocsin pipeline replay has them pushed.",
        must_be_zero,
    ),
    "never_received": FigureText(
        "never received",
        "Sent by an SMP router and recorded by no NTF router, at the last tocsin pipeline report --check.",
        "Not 0: does the NTF router write its event log, and is it read? Otherwise the connection loses notifications.",
        must_be_zero,
    ),
    "unknown_queue": FigureText(
        "for unknown queues",
        "Received for a queue that the NTF router does not know, at the last tocsin pipeline report --check.",
        "Not 0: run tocsin pipeline reconcile, then tocsin ntf repair.",
        must_be_zero,
    ),
    # Outcomes
    "pushes_accepted": FigureText(
        "pushes accepted",
        "Message pushes that the provider accepted. One push carries up to six notifications.",
        "Not growing while notifications arrive: the provider is unreachable or refuses. Check the log.",
    ),
    "pushes_failed": FigureText(
        "pushes failed",
        "Message pushes that failed for good, including those to dead device tokens.",
        "Rises quickly: credentials have expired or the topic is wrong. The log has Apple's reason.",
        rarely_above_zero,
    ),
    "pushes_retried": FigureText(
        "pushes retried",
        "Sent again after a temporary failure: a broken connection, 429 or 503.",
        "Rises all the time: the provider throttles us, or the network is bad. Nothing is lost meanwhile.",
    ),
    "pushes_shed": FigureText(
        "other pushes shed",
        "Verification and periodic pushes dropped because too many were waiting. Devices ask again.",
        "Above 0: the provider cannot keep up. Check its response times.",
        rarely_above_zero,
    ),
    "verifications": FigureText(
        "verification pushes",
        "Accepted pushes that carried a code to a new device token.",
        "Far below the number of registered tokens: devices never get their code. Check the failed ones in the "
        "metrics.",
    ),
    # States
    "tokens": FigureText(
        "device tokens",
        "In the store, in any state.",
        "Falls suddenly: tokens are being deleted, or an older store was restored.",
    ),
    "tokens_verified": FigureText(
        "tokens verified",
        "Device tokens that returned the code from their verification push.",
        "Falls behind registrations: verification pushes do not arrive.",
    ),
    "tokens_invalid": FigureText(
        "tokens declared dead",
        "Device tokens that the provider called invalid, usually because the app was removed.",
        "Rises suddenly: pushes go to the wrong environment (sandbox or production) or topic.",
    ),
    "subscriptions": FigureText(
        "subscriptions",
        "Queues whose notifications devices have asked for (approximate).",
        "Falls although no users leave: compare with the SMP routers using tocsin pipeline reconcile.",
    ),
    # SMP routers
    "routers_known": FigureText(
        "SMP routers known",
        "SMP routers with queues that devices have subscribed to.",
        "0 although devices have subscribed: the store could not be read. Check the log.",
    ),
    "routers_connected": FigureText(
        "connected",
        "SMP routers with an open connection.",
        "Below the number known: see the next number.",
    ),
    "routers_away": FigureText(
        "away or resubscribing",
        "SMP routers without a connection, or whose queues are being subscribed again.",
        "Stays above 0: that router is down or its address changed. Its users get no notifications.",
        rarely_above_zero,
    ),
    "drifts": FigureText(
        "service drifts",
        "Times that an SMP router reported a different number or hash of our queues than we expected.",
        "Above 0: the two disagree about queues. Run tocsin pipeline reconcile, then tocsin ntf repair.",
        rarely_above_zero,
    ),
    "drift_queues": FigureText(
        "queues that differ",
        "Queues about which the NTF router and the SMP router disagreed in the last comparison.",
        "Above 0: tocsin pipeline reconcile lists them, and tocsin ntf repair makes both agree.",
        rarely_above_zero,
    ),
    # Resubscription
    "subscribed": FigureText(
        "queues subscribed",
        "Queues for which SMP routers now send notifications to this router.",
        "Stays below subscriptions: check what is pending, and the SMP routers.",
    ),
    "to_subscribe": FigureText(
        "still to subscribe",
        "Queues whose subscription has yet to be made or renewed.",
        "Does not fall: their SMP router is away. Notifications for their messages follow when it is back.",
        rarely_above_zero,
    ),
    "queues_refused": FigureText(
        "subscriptions refused",
        "Subscriptions that SMP routers refused because the queue or its notifier no longer exists.",
        "Rises suddenly: an SMP router lost its store, or devices were restored from old backups.",
    ),
    # Depths
    "push_queue": FigureText(
        "waiting for a push",
        "Device tokens and other pushes waiting for their turn.",
        "Grows: the provider is too slow. Nothing is lost; newer notifications supersede older ones.",
        below(1_000, 100_000),
    ),
    "under_way": FigureText(
        "at the provider",
        "Pushes sent and not answered yet.",
        "Always at its limit: the provider answers slowly. Check its response times.",
    ),
    "smp_waiting": FigureText(
        "waiting for the NTF router",
        "Notifiers with notifications that the SMP router has not delivered.",
        "Does not fall: no NTF router is subscribed. Check that it runs and can reach this router.",
        below(100, 10_000),
    ),
    "smp_packets": FigureText(
        "packets to forward",
        "Packets from devices to NTF routers that have not been answered yet.",
        "Does not fall: that NTF router cannot be reached.",
        below(100, 10_000),
    ),
    "smp_queues": FigureText(
        "message queues",
        "At the SMP router, with or without messages.",
        "Falls suddenly: queues are being deleted, or an older store was restored.",
    ),
    "events_lost": FigureText(
        "delivery events lost",
        "Lines that could not be written to the event log, so the pipeline will not see them.",
        "Above 0: the disk is full or read-only. Notifications are not affected.",
        must_be_zero,
    ),
    # A fleet
    "fleet_instances": FigureText(
        "instances",
        "Processes that serve this router's address, at the latest look of this one.",
        "Fewer than you started: look at the logs of the others.",
    ),
    "fleet_leases_free": FigureText(
        "parts without an instance",
        "SMP routers, shards of pushes and chores that no living instance holds.",
        "Above 0 for longer than fleet_lease: no instance takes them. Look at their logs and at the database.",
        rarely_above_zero,
    ),
    "fleet_taken_over": FigureText(
        "parts taken over",
        "Parts that this instance took from one that was gone without giving them back, since its start.",
        "Grows: instances die or stand still. Notifications of these parts waited for about fleet_lease.",
    ),
    "fleet_unreachable": FigureText(
        "SMP routers out of reach here",
        "SMP routers that this instance could not reach for fleet_patience. Another one has them, if it can.",
        "Many at one instance only: look at the network of its machine.",
    ),
    "fleet_lapses": FigureText(
        "times this instance lost its parts",
        "It could not renew its leases in time, so it stopped subscribing and pushing until it could.",
        "Grows: the database is slow or away, or this machine is overloaded.",
        rarely_above_zero,
    ),
    "fleet_renewal": FigureText(
        "renewal of leases, ms",
        "How long the database took for the latest renewal.",
        "Near fleet_lease (5,000 ms by default): leases are about to be lost. Look at the database.",
        below(1_000, 3_000),
    ),
}

LIVE_STAGES: Final[dict[str, tuple[str, str, str]]] = {
    "simplex_ntf_store_seconds": (
        "stored",
        "From the arrival of an NMSG until it is safe in the store.",
        "Above 0.1 s: the database is slow. Check its disk.",
    ),
    "simplex_ntf_provider_seconds": (
        "provider answers",
        "From sending a push to the provider's answer.",
        "Above 1 s: the provider or the network to it is slow; more connections may help.",
    ),
    "simplex_ntf_received_to_accepted_seconds": (
        "received to accepted",
        "From the arrival of an NMSG until the provider accepts the push that carries it: the delay that a user "
        "notices.",
        "Above 5 s although the provider answers quickly: too few pushes at once, or many retries.",
    ),
}
"""Histograms of an NTF router, in the order of a notification's path: label, meaning, and what to do if slow."""

TABLE_STAGES: Final[dict[str, tuple[str, str]]] = {
    "SMP router": ("From SEND to NMSG.", "Long: no NTF router was subscribed, or its connection was full."),
    "between routers": (
        "From NMSG at the SMP router to its arrival at the NTF router; 0 if the clocks disagree.",
        "Long: the network, or a busy NTF router. Compare the clocks first.",
    ),
    "NTF router": (
        "From arrival to the first attempt to push.",
        "Long: pushes are waiting. See What is waiting.",
    ),
    "provider": (
        "From the first attempt until the provider accepts.",
        "Long: the provider is slow, or pushes are retried.",
    ),
    "NTF router and provider": ("The previous two together.", "Long: see which of the two."),
    "SMP router to provider": (
        "The whole path from SEND until the provider accepts: the delay that a user notices, without the device.",
        "Long: the stages above show where.",
    ),
    "provider to device": (
        "From acceptance until a simulated device wakes.",
        "Long: the device was offline.",
    ),
    "on the device": (
        "From the wake of a simulated device until it has fetched the message.",
        "Long: SMP routers are slow.",
    ),
}
"""Stages in the pipeline's tables, in the order of a notification's path: meaning, and what to do if slow."""
