"""The NTF dialect: 512-byte blocks and all messages of the protocol."""

from __future__ import annotations

from functools import cache
from typing import Final

from tocsin.protocol.dialect import Dialect
from tocsin.protocol.messages import Command, MessageTable, Response
from tocsin.protocol.ntf import responses, subscription_commands, token_commands
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.versions import BATCHES_VERSION, SUPPORTED, WITHOUT_ALPN
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Done, Refused
from tocsin.wire.transmissions import TransmissionLayout

NTF_BLOCK_BYTES: Final = 512

NTF_COMMANDS: Final = MessageTable[Command](
    token_commands.RegisterToken,
    token_commands.VerifyToken,
    token_commands.CheckToken,
    token_commands.ReplaceToken,
    token_commands.DeleteToken,
    token_commands.SetPeriodicPush,
    subscription_commands.SubscribeToQueue,
    subscription_commands.CheckSubscription,
    subscription_commands.DeleteSubscription,
    Ping,
)

NTF_RESPONSES: Final = MessageTable[Response](
    responses.TokenRegistered,
    responses.QueueSubscribed,
    responses.TokenChecked,
    responses.SubscriptionChecked,
    Done,
    Refused,
    Pong,
    frequent={
        b"TKN ACTIVE": responses.TokenChecked(TokenStatus(TokenState.ACTIVE)),
        b"SUB ACTIVE": responses.SubscriptionChecked(SubscriptionState.ACTIVE),
    },
)


@cache
def ntf_layout(version: int) -> TransmissionLayout:
    return TransmissionLayout(session_id=version < BATCHES_VERSION, service_signature=False)


NTF: Final = Dialect(
    name="NTF",
    block_size=NTF_BLOCK_BYTES,
    alpn="ntf/1",
    supported=SUPPORTED,
    without_alpn=WITHOUT_ALPN,
    batches_from=BATCHES_VERSION,
    layout=ntf_layout,
    commands=NTF_COMMANDS,
    responses=NTF_RESPONSES,
)
