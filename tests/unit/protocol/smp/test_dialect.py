from __future__ import annotations

from tocsin.protocol.smp.dialect import SMP


def test_all_commands_and_responses_of_the_protocol_are_known() -> None:
    """smp.md 6.3 and 6.4."""
    commands = (
        "NEW SUB SUBS KEY RKEY LSET LDEL NKEY NDEL GET ACK OFF DEL QUE "
        "SKEY SEND PING LKEY LGET NSUB NSUBS PRXY PFWD RFWD RSLV"
    )
    responses = "IDS LNK SOK SOKS MSG NID NMSG PKEY RRES PRES END ENDS ALLS DELD INFO RNAME OK PONG ERR"
    assert {kind.tag.decode() for kind in SMP.commands.kinds} == set(commands.split())
    assert {kind.tag.decode() for kind in SMP.responses.kinds} == set(responses.split())
