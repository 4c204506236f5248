"""What sessions of direct notifications add: SFWD, and keys in answers to devices."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.ntf_router.direct.keys import DirectKeys
from tocsin.ntf_router.direct.packets import DirectPackets
from tocsin.ntf_router.session.requests import NtfRequest
from tocsin.protocol.direct.ntf_messages import (
    ForwardPacket,
    PacketHandled,
    TokenCheckedWithKey,
    TokenRegisteredWithKey,
)
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.responses import TokenChecked, TokenRegistered


@dataclass(frozen=True, slots=True)
class DirectCommands:
    keys: DirectKeys
    packets: DirectPackets

    async def forward(self, request: NtfRequest[ForwardPacket]) -> Response:
        """SFWD"""
        return PacketHandled(await self.packets.handle(request.command.packet))

    def with_key(self, response: Response) -> Response:
        """Add the key to which devices seal packets to the answers to TNEW and TCHK."""
        match response:
            case TokenRegistered(token_id, dh_key):
                return TokenRegisteredWithKey(token_id, dh_key, self.keys.newest)
            case TokenChecked(status):
                return TokenCheckedWithKey(status, self.keys.newest)
        return response
