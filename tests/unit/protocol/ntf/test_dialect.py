from __future__ import annotations

from tocsin.protocol.ntf.dialect import NTF


def test_all_commands_and_responses_of_the_protocol_are_known() -> None:
    """ntf.md 2.1 and 2.2."""
    commands = "TNEW TVFY TCHK TRPL TDEL TCRN SNEW SCHK SDEL PING"
    responses = "IDTKN IDSUB OK TKN SUB PONG ERR"
    assert {kind.tag.decode() for kind in NTF.commands.kinds} == set(commands.split())
    assert {kind.tag.decode() for kind in NTF.responses.kinds} == set(responses.split())
