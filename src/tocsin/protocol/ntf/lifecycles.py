"""Life cycles of tokens and subscriptions at an NTF router, as tables of states and events (ntf.md 4.4, 4.5).

Both stores take their sets of states from here, a test tries every event in every state with both of them, and
docs/ntf-states.md is drawn from the two tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState

VERIFIABLE: Final = frozenset({TokenState.REGISTERED, TokenState.CONFIRMED, TokenState.ACTIVE})
"""The right code makes such a token active; another TNEW changes nothing."""

UNVERIFIED: Final = frozenset({TokenState.REGISTERED, TokenState.CONFIRMED})
"""The code of such a token was not returned yet."""

CONFIRMED: Final = frozenset({TokenState.CONFIRMED, TokenState.ACTIVE})
"""The provider has accepted a push to it."""

WANTED: Final = frozenset(
    {
        SubscriptionState.NEW,
        SubscriptionState.PENDING,
        SubscriptionState.ACTIVE,
        SubscriptionState.INACTIVE,
        SubscriptionState.SERVICE,
    }
)
"""States whose queues the router subscribes to. The other states are final."""

LIVE: Final = frozenset({SubscriptionState.ACTIVE, SubscriptionState.PENDING})
"""States that end with the connection to the SMP router, unless our service holds the queue."""


class TokenEvent(StrEnum):
    REGISTERED_AGAIN = "TNEW again"
    CONFIRMED = "the provider took the push with the code"
    VERIFIED = "TVFY with the right code"
    REPLACED = "TRPL"
    REFUSED = "the provider refused the device token"


class SubscriptionEvent(StrEnum):
    ASKED_FOR = "its turn to be subscribed"
    SUBSCRIBED = "NSUB: OK or SOK"
    UNAUTHORIZED = "NSUB: AUTH"
    SERVICE_REFUSED = "NSUB: SERVICE"
    ENDED = "END"
    DELETED = "DELD"
    DISCONNECTED = "connection lost (unless our service holds it)"
    SERVICE_LOST = "our service is void (if it holds it)"


TokenChanges: TypeAlias = Mapping[TokenState, TokenState]
SubscriptionChanges: TypeAlias = Mapping[SubscriptionState, SubscriptionState]

TOKEN_CHANGES: Final[Mapping[TokenEvent, TokenChanges]] = {
    TokenEvent.REGISTERED_AGAIN: {
        state: TokenState.REGISTERED for state in TokenState if state not in VERIFIABLE
    },
    TokenEvent.CONFIRMED: {state: TokenState.CONFIRMED for state in TokenState if state not in CONFIRMED},
    TokenEvent.VERIFIED: {state: TokenState.ACTIVE for state in TokenState if state in VERIFIABLE},
    TokenEvent.REPLACED: dict.fromkeys(TokenState, TokenState.REGISTERED),
    TokenEvent.REFUSED: dict.fromkeys(TokenState, TokenState.INVALID),
}
"""States that are missing do not change."""

SUBSCRIPTION_CHANGES: Final[Mapping[SubscriptionEvent, SubscriptionChanges]] = {
    SubscriptionEvent.ASKED_FOR: {
        state: SubscriptionState.PENDING for state in SubscriptionState if state in WANTED
    },
    SubscriptionEvent.SUBSCRIBED: dict.fromkeys(SubscriptionState, SubscriptionState.ACTIVE),
    SubscriptionEvent.UNAUTHORIZED: dict.fromkeys(SubscriptionState, SubscriptionState.AUTH),
    SubscriptionEvent.SERVICE_REFUSED: dict.fromkeys(SubscriptionState, SubscriptionState.SERVICE),
    SubscriptionEvent.ENDED: dict.fromkeys(SubscriptionState, SubscriptionState.END),
    SubscriptionEvent.DELETED: dict.fromkeys(SubscriptionState, SubscriptionState.DELETED),
    SubscriptionEvent.DISCONNECTED: {
        state: SubscriptionState.INACTIVE for state in SubscriptionState if state in LIVE
    },
    SubscriptionEvent.SERVICE_LOST: {
        state: SubscriptionState.INACTIVE for state in SubscriptionState if state in WANTED
    },
}
"""States that are missing do not change. Other refusals of NSUB become `ERR` with the router's text, which is final."""
