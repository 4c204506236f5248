from __future__ import annotations

import pytest

from tocsin.protocol.messages import Command
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications


@pytest.mark.parametrize(
    ("command", "wire"), [(SubscribeNotifications(), b"NSUB"), (SubscribeServiceNotifications(), b"NSUBS")]
)
def test_commands_are_bare_tags(command: Command, wire: bytes) -> None:
    for version in range(6, 19):
        assert command.encode(version) == wire
        assert SMP.commands.decode(wire, version) == command
