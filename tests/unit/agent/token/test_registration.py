"""The registration of a token, by what is saved (behaviour D8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.doubles.agent_samples import DEVICE, agent_token
from tocsin.agent.runtime.error_kinds import ErrorKind
from tocsin.agent.store.records import (
    CheckDue,
    NotificationMode,
    RegistrationDue,
    TokenAction,
    VerificationDue,
    is_active,
    notifies_instantly,
)
from tocsin.agent.token.registration import (
    AFTER_ERRORS,
    STEPS,
    ActionKind,
    AfterError,
    TokenStep,
    checked,
    registered,
    replaced,
    retargeted,
    step_for,
    to_verify,
    verified,
)
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus

OTHER_DEVICE = replace(DEVICE, token=b"ffff")
PERIODIC = NotificationMode.PERIODIC


@pytest.mark.parametrize(
    ("token_id", "action", "same", "step"),
    [
        (None, RegistrationDue(), True, TokenStep.REGISTER),
        (None, RegistrationDue(), False, TokenStep.RETARGET),
        (None, None, True, TokenStep.REGISTER),
        (None, None, False, TokenStep.RETARGET),
        (b"id", None, True, TokenStep.REGISTER),
        (b"id", None, False, TokenStep.REPLACE),
        (b"id", VerificationDue(b"code"), True, TokenStep.VERIFY),
        (b"id", VerificationDue(b"code"), False, TokenStep.REPLACE),
        (b"id", CheckDue(), True, TokenStep.CHECK),
        (b"id", CheckDue(), False, TokenStep.REPLACE),
    ],
)
def test_D08_step_follows_from_token_id_action_and_device_token(
    token_id: bytes | None, action: TokenAction | None, same: bool, step: TokenStep
) -> None:
    """D8: re-register, replace, verify or check."""
    saved = agent_token(token_id=token_id, action=action)
    assert step_for(saved, DEVICE if same else OTHER_DEVICE) is step


def test_without_a_saved_token_one_is_created() -> None:
    assert step_for(None, DEVICE) is TokenStep.CREATE


def test_no_saved_state_is_without_a_step_that_asks_the_router() -> None:
    assert set(STEPS) == set(product((True, False), ActionKind, (True, False)))


def test_D08_changed_device_token_always_reaches_the_router() -> None:
    """D8: whatever is saved."""
    assert {step for (_, _, same), step in STEPS.items() if not same} == {
        TokenStep.RETARGET,
        TokenStep.REPLACE,
    }


def test_every_step_knows_what_follows_every_error() -> None:
    assert set(AFTER_ERRORS) == set(TokenStep)
    assert all(set(errors) == set(ErrorKind) for errors in AFTER_ERRORS.values())


@pytest.mark.parametrize("step", [TokenStep.CHECK, TokenStep.VERIFY, TokenStep.REPLACE])
def test_D10_token_that_the_router_does_not_know_is_created_again(step: TokenStep) -> None:
    """D10: AUTH to a token that is saved."""
    assert AFTER_ERRORS[step][ErrorKind.AUTH] is AfterError.RECREATE


@pytest.mark.parametrize("step", TokenStep)
def test_temporary_error_changes_nothing(step: TokenStep) -> None:
    assert AFTER_ERRORS[step][ErrorKind.TEMPORARY] is AfterError.RAISE


def test_new_token_that_is_refused_is_not_created_for_ever() -> None:
    assert set(AFTER_ERRORS[TokenStep.CREATE].values()) == {AfterError.RAISE}


def test_device_token_that_changed_before_registration_is_still_to_be_registered() -> None:
    token = retargeted(agent_token(token_id=None, secret=None), OTHER_DEVICE, PERIODIC)
    assert (token.device_token, token.action, token.mode) == (OTHER_DEVICE, RegistrationDue(), PERIODIC)
    assert step_for(token, OTHER_DEVICE) is TokenStep.REGISTER


def test_mode_is_saved_with_a_replaced_device_token() -> None:
    token = replaced(agent_token(), OTHER_DEVICE, PERIODIC)
    assert token == replace(
        agent_token(),
        device_token=OTHER_DEVICE,
        mode=PERIODIC,
        status=TokenStatus(TokenState.REGISTERED),
        action=None,
    )


def test_verification_that_was_not_answered_is_repeated_by_the_next_registration() -> None:
    token = to_verify(agent_token(action=None), b"code")
    assert step_for(token, DEVICE) is TokenStep.VERIFY
    assert not is_active(token)
    assert is_active(verified(token, PERIODIC))


@pytest.mark.parametrize(
    "status",
    [
        TokenStatus(TokenState.INVALID, InvalidReason.BAD),
        TokenStatus(TokenState.EXPIRED),
        TokenStatus(TokenState.REGISTERED),
    ],
)
def test_token_that_is_not_active_is_registered_again(status: TokenStatus) -> None:
    token = checked(agent_token(), status, PERIODIC)
    assert token.status == status
    assert step_for(token, DEVICE) is TokenStep.REGISTER


def test_active_token_is_checked_next_time() -> None:
    token = checked(agent_token(), TokenStatus(TokenState.ACTIVE), PERIODIC)
    assert step_for(token, DEVICE) is TokenStep.CHECK
    assert token.mode is PERIODIC


def test_D02_subscriptions_need_an_active_token_in_instant_mode() -> None:
    """D2: in no other state of it."""
    assert notifies_instantly(agent_token())
    assert not notifies_instantly(agent_token(mode=PERIODIC))
    assert not notifies_instantly(registered(agent_token(), b"id", b"secret", NotificationMode.INSTANT))
    assert not notifies_instantly(agent_token(token_id=None))
    assert not notifies_instantly(None)
