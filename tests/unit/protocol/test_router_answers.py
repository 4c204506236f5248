from __future__ import annotations

from tocsin.protocol.error_codes import CommandFault
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.dialect import SMP


def test_ok_and_err_are_the_same_in_both_protocols() -> None:
    for dialect in (SMP, NTF):
        version = dialect.supported.highest
        assert dialect.responses.decode(b"OK", version) == Done()
        refused = Refused(CommandFault.NO_AUTH)
        assert refused.encode(version) == b"ERR CMD NO_AUTH"
        assert dialect.responses.decode(b"ERR CMD NO_AUTH", version) == refused
