"""Registering, verifying, checking, replacing and deleting device tokens (ntf.md 4.2, 4.4)."""

from __future__ import annotations

import hmac
import re
from typing import Final

from tocsin.crypto.keys import X25519PrivateKey
from tocsin.errors import BadKey, DecodeError, StoreFull
from tocsin.ntf_router.session.requests import NtfCommandTable, NtfRequest, NtfState, TokenRequest, counts
from tocsin.ntf_router.store.interface import Registered, Replaced
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider, is_registration_token
from tocsin.protocol.ntf.lifecycles import VERIFIABLE
from tocsin.protocol.ntf.responses import TokenChecked, TokenRegistered
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.protocol.ntf.token_commands import (
    CheckToken,
    DeleteToken,
    RegisterToken,
    ReplaceToken,
    SetPeriodicPush,
    VerifyToken,
)
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress
from tocsin.protocol.router_answers import Done, Refused
from tocsin.transport.public_hosts import is_public_host

SHORTEST_CRON_MINUTES: Final = 20
VERIFIED_WITHIN: Final = 86_400
"""Seconds after which a registration that was not verified is removed when its device token is registered again."""
NULL_REGISTRATIONS: Final = 100
"""Everybody who tests a router registers the same device token of the null provider: this many times more may do so."""
MAX_DEVICE_TOKEN_BYTES: Final = 200
NULL_TOKEN: Final = b"test_ntf_token"

_HEX: Final = re.compile(rb"(?:[0-9a-f]{2})+")
_WORD: Final = re.compile(rb"[0-9A-Za-z_-]+")
_REGISTERED: Final = TokenStatus(TokenState.REGISTERED)
_ACTIVE: Final = TokenStatus(TokenState.ACTIVE)
_AUTH: Final = Refused(ErrorCode.AUTH)
_QUOTA: Final = Refused(ErrorCode.QUOTA)


class TokenCommands:
    """TNEW, TVFY, TCHK, TRPL, TDEL and TCRN."""

    def __init__(self, state: NtfState) -> None:
        self._state = state

    def add_to(self, table: NtfCommandTable) -> None:
        table.add(RegisterToken, self.register)
        table.add_for_token(VerifyToken, self.verify)
        table.add_for_token(CheckToken, self.check)
        table.add_for_token(ReplaceToken, self.replace)
        table.add_for_token(DeleteToken, self.delete)
        table.add_for_token(SetPeriodicPush, self.set_periodic)

    async def register(self, request: NtfRequest[RegisterToken]) -> Response:
        """TNEW: a repeated command gets the same answer, and another push of the same code."""
        command = request.command
        if fault := self._device_token_fault(command.token):
            return Refused(fault)
        key = self._state.randomness.new_dh_key()
        try:
            secret = key.agree(command.dh_key)
        except BadKey:
            return _AUTH
        now = self._state.clock.now()
        token = TokenRecord(
            self._state.randomness.new_id(),
            command.token,
            _REGISTERED,
            command.verify_key.der,
            key.raw,
            secret,
            self._state.randomness.new_code(),
            registered_at=now,
            updated_at=now - now % 86_400,
        )
        try:
            made = await self._state.store.register(
                token, now - VERIFIED_WITHIN, self._most_unverified(command.token)
            )
        except StoreFull as full:
            self._state.counters.count_full(full.limit)
            return _QUOTA
        match made:
            case TokenRecord() as existing:
                return await self._register_again(command, existing)
            case Registered.QUOTA:
                self._state.counters.registrations_refused += 1
                return _QUOTA
            case Registered.TAKEN:
                return _AUTH  # another connection registered it meanwhile
            case Registered.DONE:
                pass
        self._state.counters.tokens_created += counts(command.token.provider)
        self._state.events.token_changed(token, None, _REGISTERED, "TNEW")
        self._push_code(token)
        return TokenRegistered(token.token_id, key.public)

    async def _register_again(self, command: RegisterToken, token: TokenRecord) -> Response:
        key = X25519PrivateKey(token.dh_private_key)
        try:
            secret = key.agree(command.dh_key)
        except BadKey:
            return _AUTH
        if not hmac.compare_digest(secret, token.dh_secret):
            return _AUTH
        if token.status.state not in VERIFIABLE:
            if not await self._state.store.register_again(token.token_id, self._state.clock.now()):
                return _AUTH
            self._state.events.token_changed(token, token.status, _REGISTERED, "TNEW")
        self._push_code(token)
        return TokenRegistered(token.token_id, key.public)

    async def verify(self, request: TokenRequest[VerifyToken]) -> Response:
        """TVFY: removes other registrations of the device token, because this device proved that it owns it."""
        token = request.token
        right = hmac.compare_digest(request.command.code, token.code)
        if not right or token.status.state not in VERIFIABLE:
            return _AUTH
        if await self._state.store.activate_token(token.token_id, token.code) is None:
            return _AUTH
        self._state.counters.tokens_verified += counts(token.device_token.provider)
        self._state.events.token_changed(token, token.status, _ACTIVE, "TVFY")
        self._state.pushes.notify(token.token_id, token.device_token.provider)  # what came before TRPL
        # Also when TVFY is repeated: the store may have failed here after it activated the token.
        for queue, notifier_key in await self._state.store.new_queues_of(token.token_id):
            self._state.subscriber.subscribe(queue, notifier_key, token.token_id)
        return Done()

    async def check(self, request: TokenRequest[CheckToken]) -> Response:
        """TCHK"""
        return TokenChecked(request.token.status)

    async def replace(self, request: TokenRequest[ReplaceToken]) -> Response:
        """TRPL: the shared secret stays, so that the device can read the code that the new token receives."""
        token, command = request.token, request.command
        if fault := self._device_token_fault(command.token):
            return Refused(fault)
        if command.token != token.device_token and not await self._may_register(command.token):
            return _QUOTA
        code = self._state.randomness.new_code()
        now = self._state.clock.now()
        match await self._state.store.replace_token(token.token_id, command.token, code, now):
            case Replaced.MISSING:
                return _AUTH
            case Replaced.TAKEN:  # it stays so, and agents repeat what is answered with STORE (v7.md 11)
                return _AUTH
            case Replaced.DONE:
                pass
        self._state.counters.tokens_replaced += counts(token.device_token.provider)
        self._state.events.token_changed(token, token.status, _REGISTERED, "TRPL")
        replaced = await self._state.store.token(token.token_id)
        if replaced is not None:
            self._push_code(replaced)
        return Done()

    async def delete(self, request: TokenRequest[DeleteToken]) -> Response:
        """TDEL"""
        token = request.token
        if await self._state.store.delete_token(token.token_id) is None:
            return _AUTH
        self._state.counters.tokens_deleted += counts(token.device_token.provider)
        self._state.events.token_changed(token, token.status, None, "TDEL")
        return Done()

    async def set_periodic(self, request: TokenRequest[SetPeriodicPush]) -> Response:
        """TCRN"""
        minutes = request.command.minutes
        if 0 < minutes < SHORTEST_CRON_MINUTES:
            return Refused(ErrorCode.QUOTA)
        if not await self._state.store.set_cron(request.token.token_id, minutes, self._state.clock.now()):
            return _AUTH
        return Done()

    async def _may_register(self, token: DeviceToken) -> bool:
        """Whether the device token may get another registration: each costs a push until one of them is verified."""
        since = self._state.clock.now() - VERIFIED_WITHIN
        if await self._state.store.unverified_registrations(token, since) < self._most_unverified(token):
            return True
        self._state.counters.registrations_refused += 1
        return False

    def _most_unverified(self, token: DeviceToken) -> int:
        limit = self._state.settings.registrations_per_device
        return limit * NULL_REGISTRATIONS if token.provider is PushProvider.APNS_NULL else limit

    def _push_code(self, token: TokenRecord) -> None:
        provider = token.device_token.provider
        self._state.counters.notifications_verification_queued += counts(provider)
        self._state.pushes.verify(token)

    def _device_token_fault(self, token: DeviceToken) -> CommandFault | None:
        """Check a device token strictly, unlike the reference: it becomes a part of the provider's URL."""
        provider = token.provider
        if provider is PushProvider.WEBPUSH:
            return self._web_push_fault(token.token)
        if provider is PushProvider.FCM:
            return self._fcm_fault(token.token)
        if provider is PushProvider.APNS_NULL:
            return None if token.token == NULL_TOKEN else CommandFault.SYNTAX
        if provider.text not in self._state.settings.apns.endpoints:
            return CommandFault.PROHIBITED
        allowed = _WORD if provider is PushProvider.APNS_TEST else _HEX
        fine = len(token.token) <= MAX_DEVICE_TOKEN_BYTES and allowed.fullmatch(token.token)
        return None if fine else CommandFault.SYNTAX

    def _fcm_fault(self, token: bytes) -> CommandFault | None:
        if self._state.settings.fcm.key_file is None:
            return CommandFault.PROHIBITED
        return None if is_registration_token(token) else CommandFault.SYNTAX

    def _web_push_fault(self, token: bytes) -> CommandFault | None:
        """Check a Web Push address. We dial its host, so the rule for SMP routers that devices name applies."""
        settings = self._state.settings
        if not settings.webpush.enabled:
            return CommandFault.PROHIBITED
        try:
            address = WebPushAddress.parse(token)
        except DecodeError:
            return CommandFault.SYNTAX
        allowed = settings.subscriber.allow_private_hosts or is_public_host(address.host)
        return None if allowed else CommandFault.PROHIBITED
