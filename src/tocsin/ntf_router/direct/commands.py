"""What devices and SMP routers get in sessions of direct notifications, besides what they get in others."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.ntf_router.direct.keys import DirectKeys
from tocsin.ntf_router.direct.packets import DirectPackets
from tocsin.protocol.direct.ntf_messages import TokenCheckedWithKey, TokenRegisteredWithKey
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.responses import TokenChecked, TokenRegistered


@dataclass(frozen=True, slots=True)
class DirectCommands:
    keys: DirectKeys
    packets: DirectPackets

    def with_key(self, response: Response) -> Response:
        """Answers to TNEW and TCHK bring the key to which packets are sealed."""
        match response:
            case TokenRegistered(token_id, dh_key):
                return TokenRegisteredWithKey(token_id, dh_key, self.keys.newest)
            case TokenChecked(status):
                return TokenCheckedWithKey(status, self.keys.newest)
        return response
