"""`tocsin ntf start` without Apple: real agents, woken through a push service."""

from __future__ import annotations

import stat
import time
from pathlib import Path

from tests.doubles.agent_commands import AgentCommands, connected_commands
from tests.doubles.agent_harness import smp_address
from tests.doubles.ntf_process import NtfFolders
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import smp_router
from tests.doubles.web_push_service import WebPushService
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme

PATH = "/up/alice?up=1"


async def test_an_agent_is_woken_through_a_push_service(tmp_path: Path) -> None:
    folders, body = NtfFolders(tmp_path / "ntf"), tmp_path / "body"
    async with (
        smp_router(notification_interval=0.0) as smp,
        WebPushService(tmp_path).running(("localhost",)) as service,
    ):
        service.now = time.time
        router = await folders.start(
            webpush="on",
            webpush_subject="mailto:op@example.com",
            webpush_ca_file=service.ca_file,
            apns_prod_host="off",
            apns_dev_host="off",
            allow_private_hosts="on",
        )
        location = RouterLocation((HOST,), str(router.port), folders.fingerprint)
        servers = ["--smp-server", str(smp_address(smp))]
        servers += ["--ntf-server", str(RouterAddress(Scheme.NTF, location))]
        alice, bob = AgentCommands(tmp_path / "alice"), AgentCommands(tmp_path / "bob")

        async def pushed() -> str:
            body.write_bytes((await service.next_received(PATH)).body)
            return str(body)

        try:
            await alice.ok("init", *servers)
            await bob.ok("init", *servers)
            await alice.ok("register", "--web-push", f"https://localhost:{service.port}{PATH}")
            assert (await alice.ok("verify", "--web-push", await pushed()))["status"] == "ACTIVE"
            _, at_bob = await connected_commands(alice, bob)
            await alice.ok("wake", "--web-push", await pushed())  # Bob's introduction
            await bob.ok("send", at_bob, "no Apple on the way")
            woken = await alice.ok("wake", "--web-push", await pushed())
            assert [message["text"] for message in woken["messages"]] == ["no Apple on the way"]
        finally:
            code = await router.stop()
    assert code == 0, "".join(router.output)
    assert stat.S_IMODE((folders.config / "webpush-vapid.pem").stat().st_mode) == 0o600
    assert len({len(each.body) for each in service.received}) == 1
    assert "/up/alice" not in "".join(router.output)
