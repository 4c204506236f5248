"""What the reasons of failures mean, and what to do about them: for the report and for `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Advice:
    means: str
    to_do: str


_NETWORK: Final = "Check the router's network and the provider's status page."

# The router's own words first (`stores.ntf_records`, `routers.ntf.delivery_lane`), then those of Apple:
# https://developer.apple.com/documentation/usernotifications/handling-notification-responses-from-apns
ADVICE: Final = {
    "token_invalid": Advice(
        "The provider says that the device token is not valid any more.",
        "Nothing, unless it is many: the app registers a new token when it is opened.",
    ),
    "token_removed": Advice("The device deleted its token before the push.", "Nothing: the user wants none."),
    "subscription_removed": Advice(
        "The device deleted its subscription before the push.",
        "Nothing: the user muted or left the conversation.",
    ),
    "expired": Advice(
        "No push succeeded while the notification was young enough to be worth one.",
        "See whether the provider refused (429, 503) or could not be reached at that time.",
    ),
    "too_large": Advice(
        "The notification is longer than a push can be.",
        "Look for SMP hosts with very long address lists: their addresses fill the push.",
    ),
    "stale_refusal": Advice(
        "The provider refused a token that was registered anew meanwhile.",
        "Nothing: the next push uses the new one.",
    ),
    "connection": Advice("The provider could not be reached.", _NETWORK),
    "timeout": Advice("The provider did not answer in time.", _NETWORK),
    "BadTopic": Advice(
        "The provider does not know the app's topic.", "Correct the topic in the router's configuration."
    ),
    "TopicDisallowed": Advice(
        "The provider's key is not for this topic.", "Use a key of the team that owns the app."
    ),
    "PayloadTooLarge": Advice(
        "The provider finds the push too large.", "Report it: our pushes have one fixed size."
    ),
    "TooManyRequests": Advice("Too many pushes to one device.", "Nothing, unless it is many devices."),
}
UNKNOWN: Final = Advice(
    "The provider refused the push and gave this word as the reason.",
    "Look the word up in the provider's list of answers, and in the router's log at that time.",
)
BUSY: Final = Advice(
    "The provider was overloaded or out of order.", "See its status page; the router tries again by itself."
)


def advice(reason: str) -> Advice:
    """Of any reason: those of server errors (5xx) are alike."""
    if known := ADVICE.get(reason):
        return known
    return BUSY if len(reason) == 3 and reason.startswith("5") and reason.isdigit() else UNKNOWN


def advice_for(reason: str) -> str:
    found = advice(reason)
    return f"{found.means} {found.to_do}"
