from __future__ import annotations

import pytest

from tocsin.protocol.dialect import Dialect
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.smp.dialect import SMP


@pytest.mark.parametrize("dialect", [SMP, NTF])
def test_ping_and_pong_are_bare_tags(dialect: Dialect) -> None:
    version = dialect.supported.highest
    assert dialect.commands.decode(b"PING", version) == Ping()
    assert Ping().encode(version) == b"PING"
    assert dialect.responses.decode(b"PONG", version) == Pong()
    assert Pong().encode(version) == b"PONG"
