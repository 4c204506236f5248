from __future__ import annotations

import pytest

from tests.appendix_a import sha256
from tests.unit.protocol.ntf.appendix_a import CORR, ROUTER_DH, SESSION, SUBSCRIPTION_ID, TOKEN_ID
from tocsin.errors import DecodeError
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.responses import (
    QueueSubscribed,
    SubscriptionChecked,
    TokenChecked,
    TokenRegistered,
)
from tocsin.protocol.ntf.statuses import (
    InvalidReason,
    SubscriptionFailed,
    SubscriptionState,
    TokenState,
    TokenStatus,
)
from tocsin.protocol.sessions import BlockCoder, RouterSession

IDTKN = TokenRegistered(TOKEN_ID, ROUTER_DH.public)


@pytest.mark.parametrize(
    ("response", "wire"),
    [
        (IDTKN, b"IDTKN \x18" + TOKEN_ID + b"\x2c" + ROUTER_DH.public.der),
        (QueueSubscribed(SUBSCRIPTION_ID), b"IDSUB \x18" + SUBSCRIPTION_ID),
        (TokenChecked(TokenStatus(TokenState.CONFIRMED)), b"TKN CONFIRMED"),
        (
            TokenChecked(TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)),
            b"TKN INVALID,UNREGISTERED",
        ),
        (SubscriptionChecked(SubscriptionState.ACTIVE), b"SUB ACTIVE"),
        (SubscriptionChecked(SubscriptionFailed("QUOTA and more")), b"SUB ERR QUOTA and more"),
    ],
)
def test_responses_have_their_layouts(response: Response, wire: bytes) -> None:
    assert response.encode(3) == wire
    assert NTF.responses.decode(wire, 3) == response


def test_the_registration_answer_is_that_of_the_appendix() -> None:
    assert len(IDTKN.encode(3)) == 76
    session = RouterSession(NTF, 3, SESSION, BlockCoder(NTF.block_size), None)
    block = session.to_block([session.response(CORR, b"", IDTKN)])
    assert sha256(block) == "99b24b7538f7caac4dda3c2f928a38b1b75869f9daf5c24a4b7de7a7314635d0"


@pytest.mark.parametrize("version", [1, 2])
def test_reasons_are_not_told_before_version_3(version: int) -> None:
    told = TokenChecked(TokenStatus(TokenState.INVALID, InvalidReason.BAD)).encode(version)
    assert told == b"TKN INVALID"


@pytest.mark.parametrize(
    "wire",
    [b"TKN ", b"TKN OTHER", b"TKN ACTIVE x", b"TKN \xff", b"SUB ", b"SUB OTHER", b"SUB ERR", b"SUB \xff"],
)
def test_unknown_statuses_are_refused(wire: bytes) -> None:
    with pytest.raises(DecodeError):
        NTF.responses.decode(wire, 3)
