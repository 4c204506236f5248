"""Tokens and subscriptions of an NTF router: docs/ntf-states.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from tocsin.protocol.ntf.lifecycles import SUBSCRIPTION_CHANGES, TOKEN_CHANGES, WANTED
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState
from tools.diagrams.ladders import Column, Row, changes, ladder
from tools.diagrams.markdown import made_from, picture, table

E = TypeVar("E", bound=StrEnum)
S = TypeVar("S", bound=StrEnum)

NOTHING: Final = "–"
_TOKENS: Final = ("ntf-token", "States of a device token and what leads from one to another")
_SUBSCRIPTIONS: Final = ("ntf-subscription", "States of a subscription and what leads from one to another")


def page() -> str:
    return "\n".join(
        [
            "# Tokens and subscriptions of the NTF router",
            "",
            made_from("src/tocsin/protocol/ntf/lifecycles.py"),
            "A row of a picture is an event. It leads from every column with a dot to the column with the arrow. In",
            "other states it changes nothing.",
            "",
            "## Device tokens",
            "",
            "`TNEW` creates a token. `TDEL` ends it, and so does the activation of another token for the same device.",
            "Only `ACTIVE` tokens get notifications. `NEW` and `EXPIRED` occur in databases of the reference.",
            "",
            picture(*_TOKENS),
            "",
            *_table("Token", TokenState, TOKEN_CHANGES),
            "",
            "## Subscriptions",
            "",
            "`SNEW` creates a subscription. `SDEL` ends it, and so does the end of its token. Queues in the states",
            ", ".join(f"`{state}`" for state in SubscriptionState if state in WANTED),
            "are subscribed at every connection to their SMP router, individually or all at once as a service. The",
            "other states are final, as is `ERR` with the SMP router's refusal. The device learns this from `SCHK` and",
            "creates another notifier.",
            "",
            picture(*_SUBSCRIPTIONS),
            "",
            *_table("Subscription", SubscriptionState, SUBSCRIPTION_CHANGES),
            "",
        ]
    )


def pictures() -> dict[str, str]:
    tokens = [Column(NOTHING, is_end=True), *(Column(state) for state in TokenState)]
    token_rows = [
        Row("TNEW", (NOTHING,), TokenState.REGISTERED),
        *_rows(TOKEN_CHANGES),
        Row("TDEL, or a rival is verified", tuple(TokenState), NOTHING),
    ]
    subscriptions = [
        Column(NOTHING, is_end=True),
        *(Column(state, is_end=state not in WANTED) for state in SubscriptionState),
    ]
    subscription_rows = [
        Row("SNEW", (NOTHING,), SubscriptionState.NEW),
        *_rows(SUBSCRIPTION_CHANGES),
        Row("SDEL, or the token goes", tuple(SubscriptionState), NOTHING),
    ]
    return {
        _TOKENS[0]: ladder("Device token", _TOKENS[1], tokens, token_rows),
        _SUBSCRIPTIONS[0]: ladder("Subscription", _SUBSCRIPTIONS[1], subscriptions, subscription_rows),
    }


def _rows(tables: Mapping[E, Mapping[S, S]]) -> Iterator[Row]:
    for event, after in tables.items():
        yield from changes(
            event, ((source, target) for source, target in after.items() if source is not target)
        )


def _table(head: str, states: Iterable[S], tables: Mapping[E, Mapping[S, S]]) -> list[str]:
    names = list(states)
    return table(
        (f"{head}, before", *(f"`{state}`" for state in names)),
        (
            (event.value, *(f"`{after[state]}`" if state in after else "" for state in names))
            for event, after in tables.items()
        ),
    )
