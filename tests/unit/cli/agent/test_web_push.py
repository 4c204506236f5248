"""`tocsin agent …` of a device whose pushes come by Web Push."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.doubles.agent_commands import AgentCommands, connected_commands
from tests.doubles.agent_harness import NtfPlace
from tests.doubles.smp_harness import smp_router
from tests.doubles.web_push_bodies import endpoint_token, next_body, running_with_web_push
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.cli.main import run
from tocsin.crypto.web_push import WebPushSecret
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import parse_push_json, plain_push_json
from tocsin.protocol.ntf.web_push_tokens import WebPushAddress, WebPushForm

ENDPOINT = "https://push.example.net/up/alice?up=1"
OTHER = "https://push.example.net/up/alice?up=2"


@dataclass(frozen=True)
class Stage:
    place: NtfPlace
    alice: AgentCommands
    bob: AgentCommands
    folder: Path

    async def body(self, endpoint: str = ENDPOINT) -> str:
        """A file with the next body that comes there."""
        async with opened_agent_store(self.alice.folder / "agent.db") as store:
            token = await endpoint_token(store, endpoint)
        return self.write(await next_body(self.place.provider, token))

    def written(self) -> bytes:
        return (self.folder / "body").read_bytes()

    def write(self, body: bytes) -> str:
        file = self.folder / "body"
        file.write_bytes(body)
        return str(file)


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    place = NtfPlace()
    async with smp_router() as smp, running_with_web_push(place) as ntf:
        stage = Stage(place, AgentCommands(folder / "alice"), AgentCommands(folder / "bob"), folder)
        await stage.alice.init(smp, ntf)
        await stage.bob.init(smp, ntf)
        yield stage


async def test_endpoint_is_registered_verified_and_woken(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        alice = stage.alice
        assert (await alice.ok("register", "--web-push", ENDPOINT))["status"] == "REGISTERED"
        assert (await alice.ok("verify", "--web-push", await stage.body()))["status"] == "ACTIVE"
        assert (await alice.ok("status"))["token"]["provider"] == "webpush"
        _, at_bob = await connected_commands(alice, stage.bob)
        await alice.ok("wake", "--web-push", await stage.body())  # Bob's introduction
        await stage.bob.ok("send", at_bob, "by Web Push")
        file = await stage.body()
        told = await alice.ok("wake", "--web-push", file, "--no-fetch")
        assert len(told["to_fetch"]) == 1
        woken = await alice.process("wake", "--web-push", "-", "--json", stdin=stage.written())
        assert [message["text"] for message in woken.json()["messages"]] == ["by Web Push"]


async def test_wake_takes_a_verification_and_the_endpoint_can_change(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.alice.ok("register", "--web-push", ENDPOINT)
        assert (await stage.alice.ok("wake", "--web-push", await stage.body()))["kind"] == "verification"
        assert (await stage.alice.ok("register", "--web-push", ENDPOINT))["status"] == "ACTIVE"
        assert (await stage.alice.ok("register", "--web-push", OTHER))["status"] == "REGISTERED"
        assert (await stage.alice.ok("verify", "--web-push", await stage.body(OTHER)))["status"] == "ACTIVE"


async def test_neither_endpoint_nor_secret_is_printed(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        said = [await stage.alice("register", "--web-push", ENDPOINT)]
        said.append(await stage.alice("verify", "--web-push", await stage.body()))
        said += [await stage.alice("status", *words) for words in ((), ("--json",))]
        said.append(await stage.alice("wake", "--web-push", stage.write(b"x" * 3200)))
        assert [ran.code for ran in said] == [0, 0, 0, 0, 1]
        for ran in said:
            assert "/up/alice" not in ran.out + ran.error


@pytest.mark.parametrize(
    "arguments",
    [
        ["register", "apns_test abcd", "--web-push", ENDPOINT],
        ["register", "--web-push"],
        ["wake", "push.json", "--web-push", "body"],
        ["verify", "push.json", "--web-push", "body"],
        ["verify", "--code=abcd", "--web-push", "body"],
    ],
)
def test_a_wrong_call_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(["agent", *arguments])
    assert end.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("register", "--web-push", "http://push.example.net/a"),
            "--web-push: a Web Push endpoint must be an https",
        ),
        (("register", "--web-push", "https://push.example.net/" + "a" * 300), "for the endpoint"),
        (("register", "webpush abcd"), "DEVICE_TOKEN: a Web Push token"),
        (("wake", "--web-push", "no-such-file"), "give a file with its body"),
        (("verify", "--web-push", "no-such-file"), "give a file with its body"),
    ],
)
async def test_what_cannot_be_used_is_refused_with_its_reason(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    ran = await alice(*arguments)
    assert ran.code == 1
    assert says in ran.error
    assert ran.error.count("\n") == 1


async def test_bodies_that_lead_nowhere_say_why(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        alice = stage.alice
        without = await alice("wake", "--web-push", stage.write(b"x" * 200))
        assert "register --web-push" in without.error
        await alice.ok("register", "--web-push", ENDPOINT)
        await stage.body()
        whole = stage.written()
        for damaged, says in (
            (b"", "body of 0 bytes"),
            (whole[:-1], "an unaltered push of this token"),
            (b"x" * 1_000_000, "body of 4097 bytes"),
        ):
            for command in ("wake", "verify"):
                ran = await alice(command, "--web-push", stage.write(damaged))
                assert ran.code == 1
                assert says in ran.error
        assert (await alice.ok("status"))["token"]["status"] == "REGISTERED"


async def test_a_push_library_with_keys_of_its_own_opens_the_pushes(tmp_path: Path) -> None:
    """In the reference's form the app's library has the keys, and the app gets the JSON."""
    address = WebPushAddress.from_url(
        ENDPOINT, WebPushSecret(bytes(range(48))).receiver, WebPushForm.REFERENCE
    )
    token = DeviceToken(PushProvider.WEBPUSH, address.token())

    async def opened(stage: Stage) -> str:
        request = await stage.place.provider.next_request(token.token)
        return stage.write(plain_push_json(parse_push_json(request.payload)))

    async with staged(tmp_path) as stage:
        alice = stage.alice
        assert (await alice.ok("register", token.text()))["status"] == "REGISTERED"
        assert (await alice.ok("verify", await opened(stage)))["status"] == "ACTIVE"
        _, at_bob = await connected_commands(alice, stage.bob)
        await alice.ok("wake", await opened(stage))
        await stage.bob.ok("send", at_bob, "opened by a library")
        woken = await alice.ok("wake", await opened(stage))
        assert [message["text"] for message in woken["messages"]] == ["opened by a library"]


async def test_compact_token_with_its_keys_is_not_registered_without_its_secret(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.alice.ok("register", "--web-push", ENDPOINT, "--compact")
        async with opened_agent_store(stage.alice.folder / "agent.db") as store:
            token = (await endpoint_token(store, ENDPOINT)).decode()
        ran = await stage.bob("register", f"webpush {token}")
        assert ran.code == 1
        assert "give a Web Push endpoint with --web-push" in ran.error


async def test_message_is_no_verification(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.alice.ok("register", "--web-push", ENDPOINT)
        await stage.alice.ok("verify", "--web-push", await stage.body())
        await connected_commands(stage.alice, stage.bob)
        ran = await stage.alice("verify", "--web-push", await stage.body())
        assert "tocsin agent wake" in ran.error
