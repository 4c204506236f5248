"""A client of an NTF router: the device's side."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Self

from tocsin.clients.client_metrics import ClientMetrics, NoMetrics
from tocsin.clients.reconnecting import reconnecting
from tocsin.clients.router_client import RouterClient
from tocsin.clients.settings import ClientSettings
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import RemoteProtocolError
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.ntf_messages import ForwardPacket, PacketHandled, TokenCheckedWithKey
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.vapid_keys import AskVapidKey, SignedVapidKey
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked, TokenChecked, TokenRegistered
from tocsin.protocol.ntf.statuses import SubscriptionStatus, TokenStatus
from tocsin.protocol.ntf.subscription_commands import (
    CheckSubscription,
    DeleteSubscription,
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
from tocsin.protocol.router_answers import Done
from tocsin.transport.client_sessions import dial_ntf


class NtfClient(RouterClient):
    """One session with an NTF router: `async with NtfClient.connect("ntf://…") as client`.

    Many subscriptions at once go through `request_all`.
    """

    @classmethod
    def connect(
        cls,
        address: str | RouterAddress,
        settings: ClientSettings | None = None,
        *,
        metrics: ClientMetrics | None = None,
    ) -> AbstractAsyncContextManager[Self]:
        """Entering raises DecodeError for a bad address, ConnectFailed, PeerIdentityMismatch, HandshakeRefused,

        HandshakeTimeout or ConnectionLost.
        """
        where = RouterAddress.of(address, Scheme.NTF)
        settings = settings or ClientSettings()
        return cls._connected(
            lambda: dial_ntf(where, settings.dial), where.name, settings, metrics or NoMetrics()
        )

    @classmethod
    def sessions(
        cls,
        address: str | RouterAddress,
        settings: ClientSettings | None = None,
        *,
        metrics: ClientMetrics | None = None,
    ) -> AsyncGenerator[Self, None]:
        """Yield a client, and the next one when it is lost and the loop continues; see `reconnecting`."""
        where = RouterAddress.of(address, Scheme.NTF)
        settings = settings or ClientSettings()
        return reconnecting(lambda: cls.connect(where, settings, metrics=metrics), settings.backoff)

    async def register_token(self, command: RegisterToken, key: AuthPrivateKey) -> TokenRegistered:
        """TNEW. `key` is the private half of the command's `verify_key`."""
        return await self.ask(TokenRegistered, command, key=key)

    async def verify_token(self, token_id: bytes, code: bytes, key: AuthPrivateKey) -> None:
        """TVFY"""
        await self.ask(Done, VerifyToken(code), token_id, key)

    async def check_token(self, token_id: bytes, key: AuthPrivateKey) -> TokenStatus:
        """TCHK"""
        return (await self.ask(TokenChecked, CheckToken(), token_id, key)).status

    async def check_token_with_key(
        self, token_id: bytes, key: AuthPrivateKey
    ) -> tuple[TokenStatus, NtfKeyOffer | None]:
        """TCHK, and the key for packets if the session is a direct one."""
        checked = await self.ask(TokenChecked, CheckToken(), token_id, key)
        return checked.status, checked.ntf_key if isinstance(checked, TokenCheckedWithKey) else None

    async def forward_packet(self, packet: bytes) -> PacketFate:
        """SFWD, by an SMP router in a direct session."""
        return (await self.ask(PacketHandled, ForwardPacket(packet))).fate

    async def vapid_key(self, ntf_identity: bytes) -> bytes:
        """VKEY, in a direct session: the public key of Web Push.

        Raises RouterRefused if the router has no Web Push, and RemoteProtocolError if its identity did not sign it.
        """
        key = await self.ask(SignedVapidKey, AskVapidKey())
        if not key.is_signed_by(self.certificates, ntf_identity, datetime.now(UTC)):
            raise RemoteProtocolError("the key for Web Push is not signed by the router's certificate")
        return key.public

    async def replace_token(self, token_id: bytes, token: DeviceToken, key: AuthPrivateKey) -> None:
        """TRPL"""
        await self.ask(Done, ReplaceToken(token), token_id, key)

    async def delete_token(self, token_id: bytes, key: AuthPrivateKey) -> None:
        """TDEL"""
        await self.ask(Done, DeleteToken(), token_id, key)

    async def set_periodic_push(self, token_id: bytes, minutes: int, key: AuthPrivateKey) -> None:
        """TCRN; 0 stops it."""
        await self.ask(Done, SetPeriodicPush(minutes), token_id, key)

    async def subscribe_to_queue(self, command: SubscribeToQueue, key: AuthPrivateKey) -> bytes:
        """SNEW; the subscription id. `key` is the token's."""
        return (await self.ask(QueueSubscribed, command, key=key)).subscription_id

    async def check_subscription(self, subscription_id: bytes, key: AuthPrivateKey) -> SubscriptionStatus:
        """SCHK"""
        return (await self.ask(SubscriptionChecked, CheckSubscription(), subscription_id, key)).status

    async def delete_subscription(self, subscription_id: bytes, key: AuthPrivateKey) -> None:
        """SDEL"""
        await self.ask(Done, DeleteSubscription(), subscription_id, key)
