"""The relay side of forwarding: commands of senders that only their proxy knows (smp.md 6.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tocsin.crypto.boxes import box_key
from tocsin.errors import BadBox, DecodeError
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import BlockCoder, ReceivedCommand, RefusedCommand, RouterSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.proxy_commands import RelayForwarded
from tocsin.protocol.smp.proxying import (
    RelayAnswerEnvelope,
    RelayEnvelope,
    seal_forwarded_answer,
    unseal_forwarded,
)
from tocsin.protocol.smp.responses import RelayAnswer
from tocsin.protocol.smp.sender_commands import (
    GetLinkData,
    SecureLinkedQueue,
    SecureQueueBySender,
    SendMessage,
)
from tocsin.smp_router.session.requests import SmpRequest, SmpState
from tocsin.smp_router.session.verification import verify

FORWARDED: Final = (SendMessage, SecureQueueBySender, SecureLinkedQueue, GetLinkData)


class RelayCommands:
    """RFWD."""

    def __init__(self, state: SmpState, execute: Callable[[SmpRequest[Any]], Response]) -> None:
        self._state = state
        self._execute = execute

    def relay(self, request: SmpRequest[RelayForwarded]) -> Response:
        """RFWD: open both envelopes, execute the command, seal its answer twice."""
        command, session = request.command, request.session
        if session.forwarding_key is None or session.session_key is None:
            return Refused(ErrorCode.CRYPTO)
        try:
            envelope = RelayEnvelope.unseal(session.forwarding_key, request.corr_id, command.envelope)
        except BadBox:
            return Refused(ErrorCode.CRYPTO)
        except DecodeError:
            return Refused(CommandFault.SYNTAX)
        if envelope.version not in SMP.supported:
            return Refused(CommandFault.SYNTAX)
        key = box_key(session.session_key.agree(envelope.client_key))
        try:
            transmission = unseal_forwarded(key, envelope.corr_id, envelope.transmission)
        except BadBox:
            return Refused(ErrorCode.CRYPTO)
        except DecodeError:
            return Refused(ErrorCode.BLOCK)
        inner = RouterSession(
            SMP, envelope.version, session.session_id, BlockCoder(SMP.block_size), session.session_key
        )
        answer = seal_forwarded_answer(key, envelope.corr_id, self._run(request, inner, transmission))
        sealed = RelayAnswerEnvelope(envelope.corr_id, answer).seal(session.forwarding_key, request.corr_id)
        self._state.counters.relayed_commands += 1
        return RelayAnswer(sealed)

    def _run(self, outer: SmpRequest[RelayForwarded], session: RouterSession, transmission: bytes) -> bytes:
        received = session.read_transmission(transmission)
        response = self._respond(outer, session, received)
        return session.response(received.corr_id, received.entity_id, response)

    def _respond(
        self,
        outer: SmpRequest[RelayForwarded],
        session: RouterSession,
        received: ReceivedCommand | RefusedCommand,
    ) -> Response:
        if isinstance(received, RefusedCommand):
            return Refused(received.error)
        if not isinstance(received.command, FORWARDED):
            return Refused(CommandFault.PROHIBITED)
        verified = verify(self._state.store, outer.peer, session, received)
        if not isinstance(verified, SmpRequest):
            return Refused(verified)
        response = self._execute(verified)
        outer.effects += verified.effects
        return response
