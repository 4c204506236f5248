"""`tocsin agent …` with direct notifications: the switch, mentions, and what status and doctor tell."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_commands import AgentCommands, connected_commands
from tests.doubles.agent_harness import ntf_address, smp_address
from tests.doubles.ntf_harness import HeldFineClock, NtfHarness, ntf_router
from tests.doubles.routers import HOST
from tests.doubles.smp_direct import direct_settings
from tests.doubles.smp_harness import SmpHarness, smp_router
from tocsin.agent.subscriptions import priorities
from tocsin.cli.agent.folder import AgentFile, read_agent_file, write_agent_file
from tocsin.cli.main import run
from tocsin.errors import ConfigError
from tocsin.ntf_router.settings.settings import NtfDirectSettings


@dataclass
class Two:
    smp: SmpHarness
    ntf: NtfHarness
    alice: AgentCommands
    bob: AgentCommands
    at_alice: str = ""
    at_bob: str = ""

    async def status(self) -> dict[str, Any]:
        [known] = (await self.alice.ok("status"))["connections"]
        assert isinstance(known, dict)
        return known

    def held_back(self) -> int:
        return self.smp.running.state.counters.notifications_held_back


@asynccontextmanager
async def two_direct_agents(tmp_path: Path) -> AsyncIterator[Two]:
    """Alice is notified of their connection."""
    settings: dict[str, Any] = {"direct": NtfDirectSettings(enabled=True), "public_hosts": (HOST,)}
    async with (
        smp_router(direct=direct_settings()) as smp,
        ntf_router(clock=HeldFineClock(time.time()), **settings) as ntf,
    ):
        two = Two(smp, ntf, AgentCommands(tmp_path / "a", b"aaaa"), AgentCommands(tmp_path / "b", b"bbbb"))
        servers = ["--smp-server", str(smp_address(smp)), "--ntf-server", str(ntf_address(ntf))]
        await two.alice.ok("init", "--direct", *servers)
        await two.bob.ok("init", "--no-direct", *servers)
        await two.alice.activate(ntf)
        two.at_alice, two.at_bob = await connected_commands(two.alice, two.bob)
        await two.alice.ok("wake", await two.alice.push(ntf))
        while (await two.status())["phase"] != "CREATED":
            await two.alice("listen", "--for", "0.05")
        yield two


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priorities, "chance", lambda: 0.0)


def test_the_switch_is_kept_in_the_settings_file(tmp_path: Path) -> None:
    write_agent_file(tmp_path, AgentFile())
    assert "direct" not in (tmp_path / "agent.ini").read_text()
    assert read_agent_file(tmp_path).direct
    assert read_agent_file(tmp_path).settings(1.0).direct
    write_agent_file(tmp_path, AgentFile(direct=False))
    assert not read_agent_file(tmp_path).settings(1.0).dialling.dial.direct
    (tmp_path / "agent.ini").write_text("[AGENT]\ndirect = perhaps\n")
    with pytest.raises(ConfigError, match="direct: write on or off"):
        read_agent_file(tmp_path)


async def test_mentions_only_holds_back_what_is_no_mention(tmp_path: Path) -> None:
    async with two_direct_agents(tmp_path) as two:
        assert (await two.status())["direct"] is True
        muted = await two.alice.ok("mute", two.at_alice, "--mentions-only")
        assert (muted["notifications"], muted["mentions_only"], muted["finished"]) == (True, True, True)
        assert (await two.status())["mentions_only"] is True
        sent = await two.bob.ok("send", two.at_bob, "not for you")
        assert sent["mention"] is False
        assert two.held_back() == 1
        sent = await two.bob.ok("send", two.at_bob, "@alice", "--mention")
        assert sent["mention"] is True
        assert two.held_back() == 1
        woken = await two.alice.ok("wake", await two.alice.push(two.ntf))
        assert [item["mention"] for item in woken["to_fetch"]] == [True]
        assert [(each["text"], each["mention"], each["shown"]) for each in woken["messages"]] == [
            ("not for you", False, False),
            ("@alice", True, True),
        ]

        await two.bob.ok("send", two.at_bob, "@alice again", "--mention")
        heard = await two.alice("listen", "--count", "1", "--json")
        [arrived] = [each for each in heard.lines() if each["event"] == "message"]
        assert (arrived["text"], arrived["mention"], arrived["priority"]) == ("@alice again", True, 2)
        await two.bob.ok("send", two.at_bob, "@alice once more", "--mention")
        assert "(mention): @alice once more" in (await two.alice("listen", "--count", "1")).out

        assert (await two.alice.ok("mute", two.at_alice))["notifications"] is False
        await two.bob.ok("send", two.at_bob, "@alice", "--mention")
        assert two.held_back() == 2
        unmuted = await two.alice.ok("unmute", two.at_alice)
        assert (unmuted["notifications"], unmuted["mentions_only"]) == (True, False)
        await two.bob.ok("send", two.at_bob, "anything")
        assert two.held_back() == 2


async def test_doctor_asks_the_smp_router_about_the_packet(tmp_path: Path) -> None:
    async with two_direct_agents(tmp_path) as two:
        await two.alice.ok("status")
        looked = await two.alice("doctor", two.at_alice, "--json")
        findings = {each["subject"]: each for each in looked.json()["findings"]}
        assert "by a packet" in findings["subscription"]["text"], findings
        assert looked.json()["verdict"] == "ok"


def test_a_message_is_silent_or_a_mention() -> None:
    with pytest.raises(SystemExit) as end:
        run(["agent", "send", "x", "text", "--silent", "--mention"])
    assert end.value.code == 2
