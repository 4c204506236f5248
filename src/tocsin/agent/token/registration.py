"""The registration of a token, by what is saved of it (ntf.md 6.3; Appendix B items 6, 7, 10, 28, 29).

A call of `register` looks up its step by (is there a token id, the saved action, is it the saved device token). Every
combination has a step, so no saved state is one without an exit. What follows a step's answer is a second table.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

from tocsin.agent.runtime.error_kinds import ErrorKind
from tocsin.agent.store.records import (
    AgentToken,
    Check,
    NotificationMode,
    Register,
    TokenAction,
    Verify,
)
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus


class ActionKind(Enum):
    """A saved action without what it carries."""

    NONE = "nothing"
    REGISTER = "register"
    VERIFY = "verify"
    CHECK = "check"


_KINDS: Final[dict[type[TokenAction], ActionKind]] = {
    Register: ActionKind.REGISTER,
    Verify: ActionKind.VERIFY,
    Check: ActionKind.CHECK,
}


class Step(Enum):
    """The value is what is sent."""

    CREATE = "new keys, TNEW"
    REGISTER = "TNEW"
    RETARGET = "save the device token, TNEW"
    REPLACE = "TRPL"
    VERIFY = "TVFY"
    CHECK = "TCHK"


_A: Final = ActionKind

STEPS: Final[dict[tuple[bool, ActionKind, bool], Step]] = {
    # (token id known, action, same device token)
    (False, _A.NONE, True): Step.REGISTER,
    (False, _A.NONE, False): Step.RETARGET,
    (False, _A.REGISTER, True): Step.REGISTER,
    # The reference forgets the action first and is stuck if TNEW fails (item 6).
    (False, _A.REGISTER, False): Step.RETARGET,
    # Not written by this agent: without an id there is nothing to verify or check.
    (False, _A.VERIFY, True): Step.REGISTER,
    (False, _A.VERIFY, False): Step.RETARGET,
    (False, _A.CHECK, True): Step.REGISTER,
    (False, _A.CHECK, False): Step.RETARGET,
    # Registered and not verified, or found invalid: the router sends the code again.
    (True, _A.NONE, True): Step.REGISTER,
    (True, _A.NONE, False): Step.REPLACE,
    (True, _A.REGISTER, True): Step.REGISTER,
    (True, _A.REGISTER, False): Step.REPLACE,
    (True, _A.VERIFY, True): Step.VERIFY,
    (True, _A.VERIFY, False): Step.REPLACE,
    (True, _A.CHECK, True): Step.CHECK,
    (True, _A.CHECK, False): Step.REPLACE,
}


def step_for(saved: AgentToken | None, device_token: DeviceToken) -> Step:
    if saved is None:
        return Step.CREATE
    kind = _A.NONE if saved.action is None else _KINDS[type(saved.action)]
    return STEPS[saved.token_id is not None, kind, saved.device_token == device_token]


class AfterError(Enum):
    RAISE = "raise, nothing changed"
    RECREATE = "forget the token, create another, tell the app"


AFTER_ERRORS: Final[dict[Step, dict[ErrorKind, AfterError]]] = {
    # New keys that were refused would be refused again.
    Step.CREATE: {
        ErrorKind.TEMPORARY: AfterError.RAISE,
        ErrorKind.AUTH: AfterError.RAISE,
        ErrorKind.PERMANENT: AfterError.RAISE,
    },
    # AUTH: the router knows these keys with another secret (ntf.md 4.2), so only others can help.
    Step.REGISTER: {
        ErrorKind.TEMPORARY: AfterError.RAISE,
        ErrorKind.AUTH: AfterError.RECREATE,
        ErrorKind.PERMANENT: AfterError.RAISE,
    },
    Step.RETARGET: {
        ErrorKind.TEMPORARY: AfterError.RAISE,
        ErrorKind.AUTH: AfterError.RECREATE,
        ErrorKind.PERMANENT: AfterError.RAISE,
    },
    # Any refusal: the new device token may be registered with these keys already, which TRPL cannot solve.
    Step.REPLACE: {
        ErrorKind.TEMPORARY: AfterError.RAISE,
        ErrorKind.AUTH: AfterError.RECREATE,
        ErrorKind.PERMANENT: AfterError.RECREATE,
    },
    Step.VERIFY: {
        ErrorKind.TEMPORARY: AfterError.RAISE,
        ErrorKind.AUTH: AfterError.RECREATE,
        ErrorKind.PERMANENT: AfterError.RAISE,
    },
    # The reference raises AUTH for ever (item 28).
    Step.CHECK: {
        ErrorKind.TEMPORARY: AfterError.RAISE,
        ErrorKind.AUTH: AfterError.RECREATE,
        ErrorKind.PERMANENT: AfterError.RAISE,
    },
}


def after_error(step: Step, kind: ErrorKind) -> AfterError:
    return AFTER_ERRORS[step][kind]


# What a token is after an answer. The mode is saved with it, whatever the step (item 7).

REGISTERED: Final = TokenStatus(TokenState.REGISTERED)
ACTIVE: Final = TokenStatus(TokenState.ACTIVE)


def retargeted(token: AgentToken, device_token: DeviceToken, mode: NotificationMode) -> AgentToken:
    """Before TNEW: the action stays until it has succeeded."""
    return replace(
        token,
        device_token=device_token,
        mode=mode,
        action=Register(),
        status=TokenStatus(TokenState.NEW),
        token_id=None,
        secret=None,
        ntf_key=None,
    )


def registered(
    token: AgentToken,
    token_id: bytes,
    secret: bytes,
    mode: NotificationMode,
    ntf_key: NtfKeyOffer | None = None,
) -> AgentToken:
    return replace(
        token,
        token_id=token_id,
        secret=secret,
        status=REGISTERED,
        action=None,
        mode=mode,
        ntf_key=ntf_key,
    )


def replaced(token: AgentToken, device_token: DeviceToken, mode: NotificationMode) -> AgentToken:
    """Id, keys and secret stay (ntf.md 4.2), and so do the subscriptions."""
    return replace(token, device_token=device_token, status=REGISTERED, action=None, mode=mode)


def to_verify(token: AgentToken, code: bytes) -> AgentToken:
    """Before TVFY: if its answer is lost, the next `register` repeats it."""
    return replace(token, status=TokenStatus(TokenState.CONFIRMED), action=Verify(code))


def verified(token: AgentToken, mode: NotificationMode) -> AgentToken:
    return replace(token, status=ACTIVE, action=Check(), mode=mode)


def checked(
    token: AgentToken, status: TokenStatus, mode: NotificationMode, ntf_key: NtfKeyOffer | None = None
) -> AgentToken:
    """Anything but ACTIVE needs another verification, so the next `register` sends TNEW."""
    action = Check() if status == ACTIVE else None
    return replace(token, status=status, action=action, mode=mode, ntf_key=ntf_key)


_ACTIONS_SEEN: Final[dict[TokenState, TokenAction | None]] = {
    TokenState.ACTIVE: Check(),
    TokenState.INVALID: None,
    TokenState.EXPIRED: None,
}


def seen(token: AgentToken, status: TokenStatus, ntf_key: NtfKeyOffer | None = None) -> AgentToken:
    """After a check that nobody asked to act upon: a verification that waits still waits."""
    waiting = token.action if isinstance(token.action, Verify) else None
    action = token.action if status == token.status else _ACTIONS_SEEN.get(status.state, waiting)
    return replace(token, status=status, action=action, ntf_key=ntf_key)


def is_active(token: AgentToken | None) -> bool:
    return token is not None and token.status == ACTIVE and token.token_id is not None


def notifies_instantly(token: AgentToken | None) -> bool:
    """Whether connections are to have subscriptions (behaviour D2)."""
    return token is not None and is_active(token) and token.mode is NotificationMode.INSTANT
