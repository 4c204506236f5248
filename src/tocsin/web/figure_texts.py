"""Every number of the page: what it is called, what it means, when it is bad and what to do then. One table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Level(StrEnum):
    PLAIN = "plain"
    """It is what it is."""
    GOOD = "good"
    LOOK = "look"
    """Worth a look."""
    BAD = "bad"


Judge = Callable[[float], Level]


def plain(_value: float) -> Level:
    return Level.PLAIN


def zero(value: float) -> Level:
    """Anything else is a bug or a loss."""
    return Level.BAD if value else Level.GOOD


def seldom(value: float) -> Level:
    """Anything else has a cause that is worth knowing."""
    return Level.LOOK if value else Level.GOOD


def below(look: float, bad: float) -> Judge:
    return lambda value: Level.BAD if value >= bad else Level.LOOK if value >= look else Level.GOOD


@dataclass(frozen=True, slots=True)
class FigureText:
    label: str
    meaning: str
    action: str
    """When it is bad, and what to do then."""
    judge: Judge = plain


FIGURES: Final[dict[str, FigureText]] = {
    # The accounting
    "received": FigureText(
        "received",
        "Notifications that SMP routers sent and this NTF router stored, in the life of its store.",
        "Not growing while people write: SMP routers are not subscribed. See resubscription below.",
    ),
    "tables_received": FigureText(
        "received",
        "Notifications that NTF routers received in these days, by their event logs. Each counts once.",
        "Not growing although the router's own number does: tocsin pipeline ingest does not run.",
    ),
    "accepted": FigureText(
        "accepted",
        "Notifications that travelled in a push the provider answered with 200.",
        "Far below received, with few superseded: read the provider's outcomes below.",
    ),
    "superseded": FigureText(
        "superseded",
        "Replaced by a newer notification of the same queue before a push left: the device is woken all the same.",
        "More than half of all: pushes wait too long. Look at the queue of pushes and the provider's answers.",
    ),
    "failed": FigureText(
        "failed",
        "Given up: the device token is dead, the provider refused for good, or the time was over.",
        "Dead tokens are ordinary. Other reasons: see the provider's outcomes, then the router's log.",
        seldom,
    ),
    "shed": FigureText(
        "shed",
        "Dropped because too many waited.",
        "Not 0: the provider is slower than what comes. Raise the limits, or find out why it is slow.",
        seldom,
    ),
    "pending": FigureText(
        "pending",
        "Stored and without an outcome yet: on their way, or waiting for the provider.",
        "Grows and does not fall: the provider is away, or refuses our credentials. See the router's log.",
        below(1_000, 100_000),
    ),
    "difference": FigureText(
        "difference",
        "received − accepted − superseded − failed − shed − pending. Every notification is one of these.",
        "Not 0 is a bug or a loss: keep the store as it is, run tocsin pipeline explain, and report it.",
        zero,
    ),
    # Outcomes
    "pushes_accepted": FigureText(
        "pushes accepted",
        "Message pushes that the provider took; one carries up to six notifications.",
        "Not growing while notifications come: the provider is away or refuses. See the log.",
    ),
    "pushes_failed": FigureText(
        "pushes failed",
        "Message pushes that failed for good, dead device tokens included.",
        "Rises quickly: credentials have expired or the topic is wrong. The log names Apple's reason.",
        seldom,
    ),
    "pushes_retried": FigureText(
        "pushes retried",
        "Sent again after a failure that may pass: a broken connection, 429, 503.",
        "Rises all the time: the provider limits us, or the network is bad. Nothing is lost meanwhile.",
    ),
    "pushes_shed": FigureText(
        "other pushes shed",
        "Verification and periodic pushes dropped because too many waited. Devices ask again.",
        "Not 0: the provider cannot keep up. Look at its answer times.",
        seldom,
    ),
    "verifications": FigureText(
        "verification pushes",
        "Carried a code to a new device token and were accepted.",
        "Far below the number of registered tokens: devices never get their code. See failed ones in the metrics.",
    ),
    # States
    "tokens": FigureText(
        "device tokens",
        "In the store, in any state.",
        "Falls suddenly: somebody deletes tokens, or the store was replaced by an older one.",
    ),
    "tokens_verified": FigureText(
        "tokens verified",
        "Device tokens that returned the code of their verification push.",
        "Stays behind registrations: verification pushes do not arrive.",
    ),
    "tokens_invalid": FigureText(
        "tokens declared dead",
        "Device tokens that the provider called invalid: the app was removed, mostly.",
        "A sudden rise: pushes go to the wrong environment (sandbox or production) or topic.",
    ),
    "subscriptions": FigureText(
        "subscriptions",
        "Queues whose notifications devices have asked for, nearly.",
        "Falls without users leaving: compare with the SMP routers by tocsin pipeline reconcile.",
    ),
    # SMP routers
    "routers_known": FigureText(
        "SMP routers known",
        "With queues that this router is to hear about.",
        "0 although devices have subscribed: the store could not be read. See the log.",
    ),
    "routers_connected": FigureText(
        "connected",
        "SMP routers with an open connection.",
        "Below the known ones: see the next number.",
    ),
    "routers_away": FigureText(
        "away or resubscribing",
        "SMP routers without a connection, or whose queues are being subscribed again.",
        "Stays above 0: that router is down or its address changed. Its users get no notifications.",
        seldom,
    ),
    "drifts": FigureText(
        "service drifts",
        "Times an SMP router named another number or hash of our queues than we expected.",
        "Not 0: the two disagree about queues. Run tocsin pipeline reconcile, then tocsin ntf repair.",
        seldom,
    ),
    "drift_queues": FigureText(
        "queues that differ",
        "Queues about which NTF router and SMP router disagreed when they were last compared.",
        "Not 0: tocsin pipeline reconcile says which; tocsin ntf repair makes them agree.",
        seldom,
    ),
    # Resubscription
    "subscribed": FigureText(
        "queues subscribed",
        "Queues that SMP routers notify this router of, now.",
        "Below subscriptions for long: see what is pending and the SMP routers.",
    ),
    "to_subscribe": FigureText(
        "still to subscribe",
        "Queues whose subscription is to be made or renewed.",
        "Does not fall: their SMP router is away. Their messages are notified of when it is back.",
        seldom,
    ),
    "queues_refused": FigureText(
        "subscriptions refused",
        "Subscriptions that SMP routers refused: the queue or its notifier is gone.",
        "A sudden rise: an SMP router lost its store, or devices were restored from old backups.",
    ),
    # Depths
    "push_queue": FigureText(
        "waiting for a push",
        "Device tokens and other pushes that wait for their turn.",
        "Grows: the provider is too slow. Nothing is lost; newer notifications supersede older ones.",
        below(1_000, 100_000),
    ),
    "under_way": FigureText(
        "at the provider",
        "Pushes that were sent and not answered yet.",
        "At its limit all the time: the provider answers slowly. See its times.",
    ),
    "smp_waiting": FigureText(
        "waiting for the NTF router",
        "Notifiers with notifications that the SMP router has not delivered.",
        "Does not fall: no NTF router is subscribed. See whether it runs and reaches this router.",
        below(100, 10_000),
    ),
    "smp_packets": FigureText(
        "packets to forward",
        "Packets of devices for NTF routers that have not answered yet.",
        "Does not fall: that NTF router cannot be reached.",
        below(100, 10_000),
    ),
    "smp_queues": FigureText(
        "message queues",
        "At the SMP router, with or without messages.",
        "Falls suddenly: somebody deletes queues, or the store was replaced by an older one.",
    ),
    "events_lost": FigureText(
        "delivery events lost",
        "Lines that could not be written to the event log: the pipeline will not see them.",
        "Not 0: the disk is full or read-only. Notifications are not affected.",
        zero,
    ),
}

LEGS: Final[dict[str, tuple[str, str, str]]] = {
    "simplex_ntf_store_seconds": (
        "stored",
        "From an NMSG's arrival until it is safe in the store.",
        "Above 0.1 s: the database is slow. Look at its disk.",
    ),
    "simplex_ntf_provider_seconds": (
        "provider answers",
        "From sending a push to the provider's answer.",
        "Above 1 s: the provider or the network to it is slow; more connections may help.",
    ),
    "simplex_ntf_received_to_accepted_seconds": (
        "received to accepted",
        "From an NMSG's arrival to the acceptance of the push that carries it: what a user feels.",
        "Above 5 s with fast answers: too few pushes at once, or many retries.",
    ),
}
"""Histograms of an NTF router, in the order of the way."""

TABLE_LEGS: Final[dict[str, tuple[str, str]]] = {
    "SMP router": ("From SEND to NMSG.", "Long: no NTF router was subscribed, or its connection was full."),
    "between routers": (
        "From the SMP router's NMSG to its arrival at the NTF router; 0 if the clocks disagree.",
        "Long: the network, or a busy NTF router. Compare the clocks first.",
    ),
    "NTF router": ("From arrival to the first attempt of a push.", "Long: pushes wait. See what waits."),
    "provider": (
        "From the first attempt to the acceptance.",
        "Long: the provider is slow, or pushes are retried.",
    ),
    "NTF router and provider": ("The two before together.", "See them."),
    "SMP router to provider": (
        "The whole way, from SEND to acceptance: what a user feels, but for the device.",
        "Long: the legs above say where.",
    ),
    "provider to device": ("From acceptance to the wake of a simulated device.", "Long: it was offline."),
    "on the device": (
        "From the wake of a simulated device to the fetched message.",
        "Long: SMP routers are slow.",
    ),
}
"""Legs of the pipeline's tables: what they mean, and what to do when they take long."""
