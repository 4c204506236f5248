"""Decisions about the registration of a token (ntf.md 6.3; Appendix B items 6, 7, 10, 28, 29).

A call of `register` looks up its step by (is there a token id, the saved action, is it the saved device token). Every
combination has a step, so every saved state has an exit. A second table says what follows a step's error.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

from tocsin.agent.runtime.error_kinds import ErrorKind
from tocsin.agent.store.records import (
    ACTIVE,
    AgentToken,
    CheckDue,
    NotificationMode,
    RegistrationDue,
    TokenAction,
    VerificationDue,
)
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus


class ActionKind(Enum):
    """A saved action without its contents."""

    NONE = "nothing"
    REGISTER = "register"
    VERIFY = "verify"
    CHECK = "check"


_KINDS: Final[dict[type[TokenAction], ActionKind]] = {
    RegistrationDue: ActionKind.REGISTER,
    VerificationDue: ActionKind.VERIFY,
    CheckDue: ActionKind.CHECK,
}


class TokenStep(Enum):
    """A step of a registration. The value says what it sends."""

    CREATE = "new keys, TNEW"
    REGISTER = "TNEW"
    RETARGET = "save the device token, TNEW"
    REPLACE = "TRPL"
    VERIFY = "TVFY"
    CHECK = "TCHK"


_A: Final = ActionKind

STEPS: Final[dict[tuple[bool, ActionKind, bool], TokenStep]] = {
    # (token id known, action, same device token)
    (False, _A.NONE, True): TokenStep.REGISTER,
    (False, _A.NONE, False): TokenStep.RETARGET,
    (False, _A.REGISTER, True): TokenStep.REGISTER,
    # The reference forgets the action first and is stuck if TNEW fails (item 6).
    (False, _A.REGISTER, False): TokenStep.RETARGET,
    # This agent never writes these: without an id there is nothing to verify or check.
    (False, _A.VERIFY, True): TokenStep.REGISTER,
    (False, _A.VERIFY, False): TokenStep.RETARGET,
    (False, _A.CHECK, True): TokenStep.REGISTER,
    (False, _A.CHECK, False): TokenStep.RETARGET,
    # Registered and not verified, or found invalid: the router sends the code again.
    (True, _A.NONE, True): TokenStep.REGISTER,
    (True, _A.NONE, False): TokenStep.REPLACE,
    (True, _A.REGISTER, True): TokenStep.REGISTER,
    (True, _A.REGISTER, False): TokenStep.REPLACE,
    (True, _A.VERIFY, True): TokenStep.VERIFY,
    (True, _A.VERIFY, False): TokenStep.REPLACE,
    (True, _A.CHECK, True): TokenStep.CHECK,
    (True, _A.CHECK, False): TokenStep.REPLACE,
}


def step_for(saved: AgentToken | None, device_token: DeviceToken) -> TokenStep:
    if saved is None:
        return TokenStep.CREATE
    kind = _A.NONE if saved.action is None else _KINDS[type(saved.action)]
    return STEPS[saved.token_id is not None, kind, saved.device_token == device_token]


class AfterError(Enum):
    RAISE = "raise, nothing changed"
    RECREATE = "forget the token, create another, tell the app"


_RAISE: Final = dict.fromkeys(ErrorKind, AfterError.RAISE)
_RECREATE_IF_UNKNOWN: Final = _RAISE | {ErrorKind.AUTH: AfterError.RECREATE}
AFTER_ERRORS: Final[dict[TokenStep, dict[ErrorKind, AfterError]]] = {
    # The router would refuse other new keys as well.
    TokenStep.CREATE: _RAISE,
    # AUTH: the router knows these keys with another secret (ntf.md 4.2), so only other keys can help.
    TokenStep.REGISTER: _RECREATE_IF_UNKNOWN,
    TokenStep.RETARGET: _RECREATE_IF_UNKNOWN,
    # Any refusal: the new device token may already be registered with these keys, which TRPL cannot solve.
    TokenStep.REPLACE: _RECREATE_IF_UNKNOWN | {ErrorKind.PERMANENT: AfterError.RECREATE},
    TokenStep.VERIFY: _RECREATE_IF_UNKNOWN,
    # The reference keeps raising AUTH (item 28).
    TokenStep.CHECK: _RECREATE_IF_UNKNOWN,
}


# The token after an answer. Every step saves the mode with it (item 7).

REGISTERED: Final = TokenStatus(TokenState.REGISTERED)


def retargeted(token: AgentToken, device_token: DeviceToken, mode: NotificationMode) -> AgentToken:
    """Prepare TNEW. The action stays until it has succeeded."""
    return replace(
        token,
        device_token=device_token,
        mode=mode,
        action=RegistrationDue(),
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
    """Replace the device token. Id, keys and secret stay (ntf.md 4.2), and so do the subscriptions."""
    return replace(token, device_token=device_token, status=REGISTERED, action=None, mode=mode)


def to_verify(token: AgentToken, code: bytes) -> AgentToken:
    """Prepare TVFY. If its answer is lost, the next `register` repeats it."""
    return replace(token, status=TokenStatus(TokenState.CONFIRMED), action=VerificationDue(code))


def verified(token: AgentToken, mode: NotificationMode) -> AgentToken:
    return replace(token, status=ACTIVE, action=CheckDue(), mode=mode)


def checked(
    token: AgentToken, status: TokenStatus, mode: NotificationMode, ntf_key: NtfKeyOffer | None = None
) -> AgentToken:
    """Save a status. Any other than ACTIVE needs another verification, so the next `register` sends TNEW."""
    action = CheckDue() if status == ACTIVE else None
    return replace(token, status=status, action=action, mode=mode, ntf_key=ntf_key)


_ACTIONS_SEEN: Final[dict[TokenState, TokenAction | None]] = {
    TokenState.ACTIVE: CheckDue(),
    TokenState.INVALID: None,
    TokenState.EXPIRED: None,
}


def seen(token: AgentToken, status: TokenStatus, ntf_key: NtfKeyOffer | None = None) -> AgentToken:
    """Note the status of a background check. A verification that is due stays due."""
    waiting = token.action if isinstance(token.action, VerificationDue) else None
    action = token.action if status == token.status else _ACTIONS_SEEN.get(status.state, waiting)
    return replace(token, status=status, action=action, ntf_key=ntf_key)
