"""`tocsin fake-fcm` as a person uses it, from the key file that it writes to the agent that it wakes."""

from __future__ import annotations

import asyncio
import signal
import stat
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.doubles.agent_commands import AgentCommands, connected_commands
from tests.doubles.agent_harness import smp_address
from tests.doubles.ntf_process import NtfFolders
from tests.doubles.routers import HOST
from tests.doubles.smp_harness import smp_router
from tests.unit.cli.test_fake_apns import line_of
from tocsin.cli.main import run
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.push.fake.fcm import ACCOUNT_FILE

TOKEN = "cFMx8-vJQ9:APA91b_" + "x" * 120


@pytest.mark.timeout(120)
async def test_an_agent_is_woken_through_firebase(tmp_path: Path) -> None:
    folders, folder, saved = NtfFolders(tmp_path / "ntf"), tmp_path / "fcm", tmp_path / "saved"
    command = [
        sys.executable,
        "-m",
        "tocsin",
        "fake-fcm",
        "--port",
        "0",
        "--folder",
        str(folder),
        "--save",
        str(saved),
    ]
    firebase = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert firebase.stdin is not None
    port = int((await line_of(firebase)).rpartition(" ")[2])
    ca_file = Path((await line_of(firebase)).partition(": ")[2])
    account = Path((await line_of(firebase)).partition(": ")[2])
    async with smp_router(notification_interval=0.0) as smp:
        router = await folders.start(
            fcm_key_file=account,
            fcm_ca_file=ca_file,
            fcm_host="localhost",
            fcm_port=port,
            apns_prod_host="off",
            apns_dev_host="off",
            allow_private_hosts="on",
        )
        location = RouterLocation((HOST,), str(router.port), folders.fingerprint)
        servers = ["--smp-server", str(smp_address(smp))]
        servers += ["--ntf-server", str(RouterAddress(Scheme.NTF, location))]
        alice, bob = AgentCommands(tmp_path / "alice"), AgentCommands(tmp_path / "bob")

        async def pushed(kind: str) -> str:
            assert (await line_of(firebase)).startswith(f"{kind} for cFMx…, ")
            return str(saved / f"{TOKEN}.json")

        try:
            await alice.ok("init", *servers)
            await bob.ok("init", *servers)
            await alice.ok("register", f"fcm {TOKEN}")
            assert (await alice.ok("verify", await pushed("verification")))["status"] == "ACTIVE"
            _, at_bob = await connected_commands(alice, bob)
            await alice.ok("wake", await pushed("message"))  # Bob's introduction
            firebase.stdin.write(b"revoke\n")
            assert await line_of(firebase) == "done: revoke"
            await bob.ok("send", at_bob, "through Firebase")
            refused = await line_of(firebase)
            assert refused.endswith("401, not delivered"), refused
            woken = await alice.ok("wake", await pushed("message"))
            assert [message["text"] for message in woken["messages"]] == ["through Firebase"]
        finally:
            code = await router.stop()
            firebase.send_signal(signal.SIGINT)
            await firebase.communicate()
    assert stat.S_IMODE((folder / ACCOUNT_FILE).stat().st_mode) == 0o600
    assert (code, firebase.returncode) == (0, 0), "".join(router.output)
    assert TOKEN not in "".join(router.output)


async def test_lines_about_access_tokens_are_obeyed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tocsin", "fake-fcm", "--port", "0", "--folder", str(tmp_path)]
    firebase = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert firebase.stdin is not None
    for _ in range(3):
        await line_of(firebase)
    for line in ("tokens answer 400 invalid_grant times=2", "life 60", "answer 404 UNREGISTERED"):
        firebase.stdin.write(line.encode() + b"\n")
        assert await line_of(firebase) == f"done: {line}"
    for line in ("tokens", "tokens sing", "life long", "life"):
        firebase.stdin.write(line.encode() + b"\n")
        assert (await line_of(firebase)).startswith(f"unknown command '{line}'")
    firebase.send_signal(signal.SIGINT)
    await firebase.communicate()
    assert firebase.returncode == 0


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(["fake-fcm", "--port", "0", "--folder", str(tmp_path / "file" / "x")]) == 1
    assert capsys.readouterr().err == (
        "tocsin: fake-fcm cannot start: Not a directory. Choose another --port or --folder\n"
    )
