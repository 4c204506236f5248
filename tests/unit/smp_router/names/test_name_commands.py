"""RSLV at a router, direct and through a proxy (v7.md 3)."""

from __future__ import annotations

import asyncio

import pytest

from tests.doubles.name_resolver import RECORD, answer, fake_resolver
from tests.doubles.smp_harness import (
    OK,
    PROHIBITED,
    SIG0,
    SYNTAX,
    Asked,
    Raw,
    SmpHarness,
    ed25519,
    send_command,
    smp_router,
    until,
)
from tests.doubles.smp_proxied_sender import ProxiedSender
from tests.unit.smp_router.proxy.test_proxy import PROXY
from tocsin.protocol.error_codes import CommandFault, NameFault, ResolverFault
from tocsin.protocol.messages import Needs
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.names import NameResolved, ResolveName
from tocsin.smp_router.settings.settings import SmpNameSettings

ALICE = ResolveName("alice.simplex")
BOB = ResolveName("bob.simplex")
NO_RESOLVER = Refused(NameFault.NO_RESOLVER)
NOT_FOUND = Refused(NameFault.NOT_FOUND)
BUSY = Refused(ResolverFault("resolver error"))


class UnsignedRaw(Raw):
    """Any bytes in place of a command that needs nothing."""

    needs = Needs.NOTHING


def names(endpoint: str, *, concurrency: int = 10) -> SmpNameSettings:
    return SmpNameSettings(enabled=True, endpoint=endpoint, timeout=5.0, concurrency=concurrency)


def counts(router: SmpHarness) -> tuple[int, ...]:
    found = router.running.state.counters.names
    return found.requests, found.resolved, found.not_found, found.resolver_errors, found.disabled


@pytest.mark.parametrize("version", [18, 20])
async def test_router_without_a_resolver_says_so(version: int) -> None:
    async with smp_router() as router:
        client = await router.connect(version)
        assert await client.ask(ALICE) == NO_RESOLVER
        assert counts(router) == (1, 0, 0, 0, 1)


async def test_router_that_does_not_offer_names_does_not_know_the_command() -> None:
    async with smp_router(highest_version=19) as router:
        client = await router.connect(19)
        assert await client.ask(ALICE) == Refused(CommandFault.UNKNOWN)


async def test_names_are_resolved_and_counted() -> None:
    async with fake_resolver() as fake, smp_router(names=names(fake.endpoint)) as router:
        fake.answers["/resolve/alice.simplex"] = answer()
        client = await router.connect(20, encrypted=True)
        assert await client.ask(ALICE) == NameResolved(RECORD)
        assert await client.ask(BOB) == NOT_FOUND
        fake.answers["/resolve/bob.simplex"] = answer("503 Busy", b"")
        assert await client.ask(BOB) == Refused(ResolverFault("HTTP 503"))
        assert counts(router) == (3, 1, 1, 1, 0)


async def test_syntax_and_credentials() -> None:
    async with smp_router() as router:
        client = await router.connect(20)
        assert await client.ask(UnsignedRaw(b"RSLV alice")) == SYNTAX
        assert await client.ask(UnsignedRaw(b"RSLV")) == SYNTAX
        assert await client.ask(UnsignedRaw(b"RSLV alice.simplex and more")) == NO_RESOLVER
        has_auth = Refused(CommandFault.HAS_AUTH)
        assert await client.ask(Raw(b"RSLV alice.simplex"), b"", SIG0) == has_auth
        assert await client.ask(UnsignedRaw(b"RSLV alice.simplex"), b"entity") == has_auth
        assert counts(router)[0] == 1


@pytest.mark.parametrize(
    ("role", "told"),
    [
        (ServiceRole.MESSAGING, NO_RESOLVER),
        (ServiceRole.NOTIFIER, PROHIBITED),
        (ServiceRole.PROXY, PROHIBITED),
    ],
)
async def test_of_services_only_those_for_messages_may_ask(role: ServiceRole, told: Refused) -> None:
    async with smp_router() as router:
        service = await router.connect_service(role.name, role, version=20)
        assert await service.ask(ALICE) == told


async def test_slow_resolver_delays_no_other_command_and_has_a_limit() -> None:
    async with fake_resolver() as fake, smp_router(names=names(fake.endpoint, concurrency=3)) as router:
        fake.held.clear()
        client = await router.connect(20)
        sent = [(await client.send(Asked(ALICE)))[0] for _ in range(3)]
        await until(lambda: len(fake.names) == 3)
        assert await client.ask(Ping()) == Pong()
        assert await client.ask(BOB) == BUSY
        assert len(fake.names) == 3
        other = await router.connect(20)
        waiting = asyncio.create_task(other.ask(BOB))
        await until(lambda: len(fake.names) == 4)
        fake.held.set()
        answers = [each for _ in range(3) for each in await client.block()]
        assert {each.corr_id for each in answers} == set(sent)
        assert {each.response for each in answers} == {NOT_FOUND}
        assert await waiting == NOT_FOUND
        assert await client.ask(BOB) == NOT_FOUND
        assert counts(router) == (6, 0, 5, 1, 0)


async def test_names_of_one_block_are_answered_together_with_its_other_commands() -> None:
    async with fake_resolver() as fake, smp_router(names=names(fake.endpoint)) as router:
        client = await router.connect(20)
        [name, ping] = await client.send(Asked(ALICE), Asked(Ping()))
        found = {each.corr_id: each.response for _ in range(2) for each in await client.block()}
        assert found == {name: NOT_FOUND, ping: Pong()}


async def test_names_are_resolved_through_a_proxy_and_later_commands_may_be_first() -> None:
    async with (
        fake_resolver() as fake,
        smp_router(names=names(fake.endpoint)) as relay,
        smp_router(proxy=PROXY) as proxy,
    ):
        fake.answers["/resolve/alice.simplex"] = answer()
        recipient, client = await relay.connect(20), await proxy.connect(20, encrypted=True)
        queue, key = await recipient.secured_queue(), ed25519()
        sender = await ProxiedSender.through(client, relay.location)
        assert sender.found.versions.highest == 20
        assert await sender.forward(ALICE, b"") == NameResolved(RECORD)
        assert await sender.forward(BOB, b"") == NOT_FOUND
        fake.held.clear()
        other = await ProxiedSender.through(await proxy.connect(20), relay.location)
        assert other.found.session_id == sender.found.session_id
        waiting = asyncio.create_task(other.forward(ALICE, b""))
        await until(lambda: len(fake.names) > 2)
        assert await sender.forward(send_command(b"hello"), queue.sender_id, queue.sender_key) == OK
        assert not waiting.done()
        fake.held.set()
        assert await waiting == NameResolved(RECORD)
        assert await sender.forward(Ping(), b"") == PROHIBITED
        assert key is not None


async def test_relay_without_a_resolver_refuses_inside_the_envelope() -> None:
    async with smp_router() as relay, smp_router(proxy=PROXY) as proxy:
        sender = await ProxiedSender.through(await proxy.connect(20), relay.location)
        assert await sender.forward(ALICE, b"") == NO_RESOLVER
        assert relay.running.state.counters.relayed_commands == 1


async def test_router_stops_while_names_are_resolved() -> None:
    async with fake_resolver() as fake:
        fake.held.clear()
        async with smp_router(names=names(fake.endpoint)) as router:
            client = await router.connect(20)
            await client.send(Asked(ALICE))
            await until(lambda: bool(fake.names))
