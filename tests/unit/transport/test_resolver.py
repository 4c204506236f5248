"""Lookups that take as long as the test wants: who waits for whom."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.doubles.smp_harness import until
from tocsin.errors import ConnectFailed
from tocsin.transport import resolver
from tocsin.transport.resolver import (
    MAX_LOOKUPS,
    MAX_LOOKUPS_OF_DOMAIN,
    RESERVED_LOOKUPS,
    HostAddresses,
    Resolver,
    domain_of,
    shared_resolver,
)

FOUND: HostAddresses = ((socket.AF_INET, "192.0.2.7"),)


class Names:
    """Answers at once, except for names of slow domains, which wait until the end of the test."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.slow = ["slow"]
        self.fails = False
        self.end = threading.Event()

    def __call__(self, host: str) -> HostAddresses:
        self.asked.append(host)
        if any(each in host for each in self.slow):
            self.end.wait(30)
        if self.fails:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return FOUND


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names()
    yield names
    names.end.set()


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(resolver, "_now", time)
    return time


async def ask(resolver: Resolver, *hosts: str) -> list[asyncio.Task[object]]:
    """Lookups that may take long."""
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(resolver.resolve(host, 1)) for host in hosts]
    await asyncio.sleep(0)
    return tasks


async def give_up(tasks: list[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_address_is_not_looked_up(names: Names) -> None:
    assert await Resolver(names).resolve("[::1]", 5223) == [(socket.AF_INET6, ("::1", 5223))]
    assert names.asked == []


async def test_requests_for_one_name_share_a_lookup_and_its_answer_is_kept(names: Names) -> None:
    finder = Resolver(names)
    assert await asyncio.gather(*(finder.resolve("a.example", port) for port in (1, 2))) == [
        [(socket.AF_INET, ("192.0.2.7", 1))],
        [(socket.AF_INET, ("192.0.2.7", 2))],
    ]
    await finder.resolve("a.example", 3)
    assert names.asked == ["a.example"]


async def test_slow_names_of_one_domain_take_only_its_share(names: Names) -> None:
    finder = Resolver(names)
    slow = await ask(finder, *(f"{number}.slow.example" for number in range(100)))
    assert finder.running == MAX_LOOKUPS_OF_DOMAIN
    assert finder.waiting == 100 - MAX_LOOKUPS_OF_DOMAIN
    await finder.resolve("honest.example", 1)
    await give_up(slow)


async def test_slow_names_of_many_domains_leave_room_for_names_that_were_found_before(
    names: Names, time: Time
) -> None:
    finder = Resolver(names)
    await finder.resolve("known.example", 1)
    slow = await ask(finder, *(f"a.slow{number}.example" for number in range(2 * MAX_LOOKUPS)))
    slow += await ask(finder, *(f"a.slow{number}.org" for number in range(2 * MAX_LOOKUPS)))
    slow += await ask(finder, *(f"a.slow-{number}.org" for number in range(200)))
    await until(lambda: finder.running == MAX_LOOKUPS - RESERVED_LOOKUPS)
    time.now += resolver.FRESH_SECONDS
    names.asked.clear()
    await finder.resolve("known.example", 1)
    assert names.asked == ["known.example"]
    await give_up(slow)


async def test_an_old_answer_is_used_while_the_name_is_slow_or_fails(
    names: Names, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "PATIENCE_SECONDS", 0.01)
    finder = Resolver(names)
    await finder.resolve("a.example", 1)
    time.now += resolver.FRESH_SECONDS
    names.fails = True
    assert await finder.resolve("a.example", 1)
    names.slow.append("a.example")
    assert await finder.resolve("a.example", 1)
    assert finder.running == 1
    names.end.set()
    await until(lambda: finder.running == 0)
    time.now += resolver.STALE_SECONDS
    with pytest.raises(ConnectFailed, match="Temporary failure"):
        await finder.resolve("a.example", 1)


async def test_when_the_line_is_full_a_name_fails_at_once(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "MAX_WAITING", 10)
    finder = Resolver(names)
    slow = await ask(finder, *(f"{number}.slow.example" for number in range(MAX_LOOKUPS_OF_DOMAIN + 10)))
    with pytest.raises(ConnectFailed, match="too many other names"):
        await finder.resolve("honest.example", 1)
    await give_up(slow)


async def test_a_bounded_number_of_answers_is_kept(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MAX_ANSWERS", 3)
    finder = Resolver(names)
    for host in ("a.example", "b.example", "c.example", "a.example", "d.example", "a.example", "b.example"):
        await finder.resolve(host, 1)
    assert names.asked == ["a.example", "b.example", "c.example", "d.example", "b.example"]


async def test_a_lookup_that_nobody_waits_for_goes_on_and_frees_its_place(names: Names) -> None:
    finder = Resolver(names)
    await give_up(await ask(finder, "a.slow.example"))
    assert finder.running == 1
    names.fails = True
    names.end.set()
    await until(lambda: finder.running == 0)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("a.b.example.org", "example.org"),
        ("example.org.", "example.org"),
        ("A.Example.CO.UK", "example.co.uk"),
        ("co.uk", "co.uk"),
        ("localhost", "localhost"),
    ],
)
def test_names_belong_to_the_domain_of_one_owner(host: str, domain: str) -> None:
    assert domain_of(host) == domain


async def test_all_connections_of_a_program_share_a_resolver() -> None:
    assert shared_resolver() is shared_resolver()
