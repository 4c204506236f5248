"""Kinds of errors: which pass, which mean that something is gone."""

from __future__ import annotations

import pytest

from tocsin.agent.runtime.error_kinds import (
    ErrorKind,
    error_kind,
    packet_error_kind,
    registration_error_kind,
    worker_error_kind,
)
from tocsin.agent.store.records import NextAction
from tocsin.agent.subscriptions.answers import FOLLOWS, Follow
from tocsin.clients import RouterRefused
from tocsin.errors import (
    ConnectFailed,
    ConnectionLost,
    HandshakeFault,
    HandshakeRefused,
    LocalProtocolError,
    PeerIdentityMismatch,
    ResponseTimeout,
    TocsinError,
    UnexpectedResponse,
)
from tocsin.protocol.error_codes import CommandFault, ErrorCode, StoreFault


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectFailed("x"), ErrorKind.TEMPORARY),
        (ConnectionLost("x"), ErrorKind.TEMPORARY),
        (PeerIdentityMismatch("x"), ErrorKind.TEMPORARY),
        (HandshakeRefused(HandshakeFault.VERSION, "x"), ErrorKind.TEMPORARY),
        (ResponseTimeout("x"), ErrorKind.TEMPORARY),
        (RouterRefused(ErrorCode.AUTH), ErrorKind.AUTH),
        (RouterRefused(ErrorCode.QUOTA), ErrorKind.PERMANENT),
        (RouterRefused(CommandFault.PROHIBITED), ErrorKind.PERMANENT),
        (RouterRefused(StoreFault("x")), ErrorKind.TEMPORARY),
        (UnexpectedResponse("x"), ErrorKind.PERMANENT),
        (LocalProtocolError("x"), ErrorKind.PERMANENT),
    ],
)
def test_errors_have_kinds(error: TocsinError, kind: ErrorKind) -> None:
    assert error_kind(error) is kind
    expected = ErrorKind.TEMPORARY if isinstance(error, RouterRefused) and "STORE" in str(error) else kind
    assert worker_error_kind(error) is expected


def test_too_many_registrations_pass() -> None:
    """A token whose TRPL came at a bad time must not be given up with all its subscriptions."""
    assert registration_error_kind(RouterRefused(ErrorCode.QUOTA)) is ErrorKind.TEMPORARY
    assert registration_error_kind(RouterRefused(ErrorCode.AUTH)) is ErrorKind.AUTH
    assert registration_error_kind(RouterRefused(StoreFault("x"))) is ErrorKind.TEMPORARY


def test_router_in_trouble_is_asked_again_by_workers() -> None:
    assert worker_error_kind(RouterRefused(ErrorCode.INTERNAL)) is ErrorKind.TEMPORARY


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RouterRefused(ErrorCode.QUOTA), ErrorKind.TEMPORARY),
        (RouterRefused(CommandFault.PROHIBITED), ErrorKind.AUTH),
        (RouterRefused(ErrorCode.AUTH), ErrorKind.AUTH),
        (RouterRefused(CommandFault.SYNTAX), ErrorKind.PERMANENT),
        (ConnectionLost("lost"), ErrorKind.TEMPORARY),
    ],
)
def test_refusals_of_packets_mean_what_they_mean(error: RouterRefused, kind: ErrorKind) -> None:
    assert packet_error_kind(error) is kind
    assert FOLLOWS[NextAction.ASK_FATE][ErrorKind.AUTH] is Follow.RECREATE
