"""The meaning of failure reasons and what to do about them, for the report and for `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Advice:
    means: str
    to_do: str


_NETWORK: Final = "Check the router's network and the provider's status page."

# The router's own reasons first, then those of Apple:
# https://developer.apple.com/documentation/usernotifications/handling-notification-responses-from-apns
ADVICE: Final = {
    "token_invalid": Advice(
        "The provider no longer accepts the device token.",
        "Nothing, unless there are many: the app registers a new token when it is opened.",
    ),
    "token_removed": Advice(
        "The device deleted its token before the push.", "Nothing: the user turned notifications off."
    ),
    "subscription_removed": Advice(
        "The device deleted its subscription before the push.",
        "Nothing: the user muted or left the conversation.",
    ),
    "expired": Advice(
        "No push succeeded before the notification became too old.",
        "Check whether the provider refused pushes (429, 503) or could not be reached at that time.",
    ),
    "too_large": Advice(
        "The notification does not fit into a push.",
        "Look for SMP hosts with very long address lists, which fill the push.",
    ),
    "stale_refusal": Advice(
        "The provider refused a token that the device has replaced since.",
        "Nothing: the next push uses the new token.",
    ),
    "connection": Advice("The provider could not be reached.", _NETWORK),
    "timeout": Advice("The provider did not answer in time.", _NETWORK),
    "BadTopic": Advice(
        "The provider does not know the app's topic.", "Correct the topic in the router's configuration."
    ),
    "TopicDisallowed": Advice(
        "The provider's key is not valid for this topic.", "Use a key of the team that owns the app."
    ),
    "PayloadTooLarge": Advice(
        "The provider found the push too large.", "Report a bug: all our pushes have the same size."
    ),
    "TooManyRequests": Advice("Too many pushes to one device.", "Nothing, unless there are many devices."),
}
UNKNOWN: Final = Advice(
    "The provider refused the push and gave this reason.",
    "Look up the reason in the provider's documentation, and see the router's log at that time.",
)
BUSY: Final = Advice(
    "The provider was overloaded or down.", "See its status page. The router retries by itself."
)


def advice(reason: str) -> Advice:
    """Advice for any reason. All server errors (5xx) get the same."""
    if known := ADVICE.get(reason):
        return known
    return BUSY if len(reason) == 3 and reason.startswith("5") and reason.isdigit() else UNKNOWN


def advice_for(reason: str) -> str:
    found = advice(reason)
    return f"{found.means} {found.to_do}"
