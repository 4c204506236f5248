"""Each method of the clients sends its command, authorized, and returns what the router answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.doubles.routers import running_router
from tocsin.clients import NtfClient, SmpClient
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.messages import Command, Needs, Response
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked, TokenChecked, TokenRegistered
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
    NotifierQueue,
    SubscribeToQueue,
)
from tocsin.protocol.ntf.token_commands import (
    CheckToken,
    DeleteToken,
    RegisterToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Done
from tocsin.protocol.sessions import ReceivedCommand, RouterSession
from tocsin.protocol.smp.queue_modes import NotifierIds, NotifierKeys
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    CreateQueue,
    DeleteQueue,
    EnableNotifications,
    GetMessage,
    Subscribe,
)
from tocsin.protocol.smp.responses import MessageReceived, NotificationsEnabled, QueueCreated, Subscribed
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.transport.router_sessions import RouterConnection

KEY = Ed25519PrivateKey(b"\x05" * 32)
DH = X25519PrivateKey(b"\x06" * 32).public
ID, OTHER_ID = b"\x11" * 24, b"\x22" * 24
TOKEN = DeviceToken(PushProvider.APNS_TEST, b"abcd")
NOTIFIER = NotifierKeys(KEY.public, DH)
CREATE = CreateQueue(KEY.public, DH)
REGISTER = RegisterToken(TOKEN, KEY.public, DH)
SUBSCRIBE = SubscribeToQueue(ID, NotifierQueue(RouterLocation(("a",), "", bytes(32)), OTHER_ID), KEY)
CREATED = QueueCreated(ID, OTHER_ID, DH)
MESSAGE = MessageReceived(OTHER_ID, b"sealed")
ACTIVE = TokenStatus(TokenState.ACTIVE)

SMP_METHODS: list[tuple[Callable[[SmpClient], Awaitable[object]], Command, Response, object]] = [
    (lambda client: client.create_queue(CREATE, KEY), CREATE, CREATED, CREATED),
    (lambda client: client.subscribe(ID, KEY), Subscribe(), Subscribed(), None),
    (lambda client: client.subscribe(ID, KEY), Subscribe(), Done(), None),
    (lambda client: client.get_message(ID, KEY), GetMessage(), MESSAGE, MESSAGE),
    (lambda client: client.get_message(ID, KEY), GetMessage(), Done(), None),
    (lambda client: client.acknowledge(ID, OTHER_ID, KEY), AcknowledgeMessage(OTHER_ID), MESSAGE, MESSAGE),
    (lambda client: client.acknowledge(ID, OTHER_ID, KEY), AcknowledgeMessage(OTHER_ID), Done(), None),
    (
        lambda client: client.send_message(ID, b"body", notify=True, key=KEY),
        SendMessage(MessageFlags(notify=True), b"body"),
        Done(),
        None,
    ),
    (
        lambda client: client.enable_notifications(ID, NOTIFIER, KEY),
        EnableNotifications(NOTIFIER),
        NotificationsEnabled(NotifierIds(OTHER_ID, DH)),
        NotifierIds(OTHER_ID, DH),
    ),
    (lambda client: client.delete_queue(ID, KEY), DeleteQueue(), Done(), None),
    (lambda client: client.ping(), Ping(), Pong(), None),
]
NTF_METHODS: list[tuple[Callable[[NtfClient], Awaitable[object]], Command, Response, object]] = [
    (
        lambda client: client.register_token(REGISTER, KEY),
        REGISTER,
        TokenRegistered(ID, DH),
        TokenRegistered(ID, DH),
    ),
    (lambda client: client.verify_token(ID, b"code", KEY), VerifyToken(b"code"), Done(), None),
    (lambda client: client.check_token(ID, KEY), CheckToken(), TokenChecked(ACTIVE), ACTIVE),
    (lambda client: client.replace_token(ID, TOKEN, KEY), ReplaceToken(TOKEN), Done(), None),
    (lambda client: client.delete_token(ID, KEY), DeleteToken(), Done(), None),
    (lambda client: client.set_periodic_push(ID, 20, KEY), SetPeriodicPush(20), Done(), None),
    (lambda client: client.subscribe_to_queue(SUBSCRIBE, KEY), SUBSCRIBE, QueueSubscribed(ID), ID),
    (
        lambda client: client.check_subscription(ID, KEY),
        CheckSubscription(),
        SubscriptionChecked(SubscriptionState.END),
        SubscriptionState.END,
    ),
    (lambda client: client.delete_subscription(ID, KEY), DeleteSubscription(), Done(), None),
    (lambda client: client.ping(), Ping(), Pong(), None),
]


class OneAnswer:
    """A router that answers everything alike, and remembers what it was asked."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.received: list[tuple[Command, bool]] = []

    def answer(self, session: RouterSession, received: ReceivedCommand) -> Response:
        authorized = bool(received.auth) and session.verifies(received, KEY.public)
        self.received.append((received.command, authorized))
        return self.response

    async def serve(self, connection: RouterConnection) -> None:
        await connection.serve(self.answer)


@pytest.mark.parametrize(("call", "command", "response", "result"), SMP_METHODS)
async def test_smp_methods_send_their_command_and_return_the_answer(
    call: Callable[[SmpClient], Awaitable[object]], command: Command, response: Response, result: object
) -> None:
    router = OneAnswer(response)
    async with running_router(router.serve) as running, SmpClient.connect(running.address) as client:
        assert await call(client) == result
    assert router.received == [(command, command.needs is not Needs.NOTHING)]


@pytest.mark.parametrize(("call", "command", "response", "result"), NTF_METHODS)
async def test_ntf_methods_send_their_command_and_return_the_answer(
    call: Callable[[NtfClient], Awaitable[object]], command: Command, response: Response, result: object
) -> None:
    router = OneAnswer(response)
    async with running_router(router.serve, NTF) as running, NtfClient.connect(running.address) as client:
        assert await call(client) == result
    assert router.received == [(command, command.needs is not Needs.NOTHING)]
