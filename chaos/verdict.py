"""The verdict: what must be true when the faults are over, the traffic has stopped and some time has passed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final

import asyncpg

from chaos.accounts import EventAccount, compare_providers, compare_spark, compare_totals, read_events
from chaos.world import SCHEMA, ChaosWorld, RouterPlace, at_rest
from tests.doubles.spark_desk import SparkDesk
from tocsin.agent.store.records import NextAction
from tocsin.errors import TocsinError
from tocsin.events.delivery_events import ENDS, Stage
from tocsin.ntf_router.store.postgres.rows import device_token_columns
from tocsin.ntf_router.subscriber.queue_subscriptions import ROUND_AGAIN_SECONDS
from tocsin.protocol.ntf.statuses import TokenState

PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Verdict:
    problems: list[str]
    facts: dict[str, int]


async def settle(world: ChaosWorld, patience: float) -> list[str]:
    """Wait until every message has arrived and nothing is pending. Returns what is missing in the end."""
    await asyncio.gather(*(phone.become_active() for phone in world.phones))
    problems: list[str] = []
    try:
        async with asyncio.timeout(patience):
            for phone in world.phones:
                await at_rest(phone)
                if phone.had_no_token:
                    phone.open_app()
            while problems := await _unsettled(world):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)
    except TimeoutError:
        return problems or ["the routers do not answer"]
    return []


async def _unsettled(world: ChaosWorld) -> list[str]:
    missing = {phone.number: sum(len(chat.missing) for chat in phone.chats) for phone in world.phones}
    waiting = {number: count for number, count in missing.items() if count}
    problems = [f"messages have not arrived, by phone: {waiting}"] if waiting else []
    accounting = await world.accounting()
    if accounting["pending"]:
        problems.append(f"{accounting['pending']:.0f} notifications are pending")
    restless = sum(not phone.agent.at_rest for phone in world.phones)
    if restless:
        problems.append(f"{restless} agents are not at rest")
    return problems


async def verdict(
    world: ChaosWorld, unsettled: list[str], *, spark: AbstractContextManager[SparkDesk] | None
) -> Verdict:
    """Compare the routers with the model, and the accounts with each other."""
    problems = list(unsettled)
    problems += await _tokens_and_subscriptions(world)
    problems += await _stored_states(world)
    await _stop(world.smp)
    totals = await _last_totals(world)
    if totals["difference"]:
        problems.append(f"the accounting does not add up: {totals}")
    await _stop([world.ntf])
    chats = [chat for phone in world.phones for chat in phone.chats]
    facts = {
        "messages": sum(len(chat.answered) for chat in chats),
        "arrived": sum(len(chat.arrived) for chat in chats),
        "pushes": sum(phone.pushes for phone in world.phones),
        **{name: int(value) for name, value in totals.items()},
        "events_lost": sum(place.events_lost for place in world.routers),
    }
    ntf_events = read_events(world.events("ntf"))
    smp_events = [event for place in world.smp for event in read_events(world.events(place.name))]
    ntf, smp = EventAccount(ntf_events), EventAccount(smp_events)
    only_life = world.ntf.lives == 1 and not world.ntf.events_lost
    problems += compare_totals(ntf, totals, exactly=only_life, lost=world.ntf.events_lost)
    problems += _outcomes(world, smp, ntf)
    pushed, figures = compare_providers(world, ntf)
    problems, facts = problems + pushed, facts | figures
    if spark is not None:
        with spark as desk:
            counted, figures = await compare_spark(world, EventAccount(smp_events + ntf_events), desk)
        problems, facts = problems + counted, facts | figures
    if world.apns.broken:
        problems.append(f"the provider saw {len(world.apns.broken)} violations of HTTP/2")
    return Verdict(problems, facts)


async def _tokens_and_subscriptions(world: ChaosWorld) -> list[str]:
    """Agents: the token is active, and every chat has a subscription that is checked from time to time."""
    problems = []
    for phone in world.phones:
        try:
            status = await phone.agent.tokens.check()
        except TocsinError as error:
            problems.append(f"phone {phone.number}: {error}")
            continue
        if status.state is not TokenState.ACTIVE:
            problems.append(f"phone {phone.number}: the token is {status.state}")
        rows = {row.connection_id: row for row in await phone.store.subscriptions()}
        for connection in await phone.store.connections():
            row = rows.get(connection.connection_id)
            if row is None or row.action is not NextAction.CHECK:
                problems.append(f"phone {phone.number}: a chat has no subscription: {row}")
    return problems


async def _stored_states(world: ChaosWorld) -> list[str]:
    """The NTF router's database: one active token for each phone, all of whose queues are active."""
    connection = await asyncpg.connect(world.database.url)
    try:
        await connection.execute(f"SET search_path TO {SCHEMA}")
        current = [await phone.agent.tokens.current() for phone in world.phones]
        wanted = {device_token_columns(token.device_token) for token in current}
        tokens = await connection.fetch(
            "SELECT push_provider, push_provider_token FROM tokens WHERE status = 'ACTIVE'"
        )
        active = Counter((row[0], bytes(row[1])) for row in tokens)
        problems = (
            [f"{len(wanted - active.keys())} phones have no active token"] if wanted - active.keys() else []
        )
        problems += [f"{device!r} has {count} active tokens" for device, count in active.items() if count > 1]
        chats = sum([len(await phone.store.connections()) for phone in world.phones])
        async with asyncio.timeout(2 * ROUND_AGAIN_SECONDS):
            while True:
                rows = await connection.fetch(
                    "SELECT s.status, count(*) FROM subscriptions s JOIN tokens t ON t.token_id = s.token_id "
                    "JOIN unnest($1::text[], $2::bytea[]) AS wanted (provider, token) "
                    "ON (t.push_provider, t.push_provider_token) = (wanted.provider, wanted.token) "
                    "WHERE t.status = 'ACTIVE' GROUP BY s.status",
                    *map(list, zip(*wanted, strict=True)),
                )
                states = {row[0]: row[1] for row in rows}
                if states.get("ACTIVE", 0) >= chats:
                    return problems
                await asyncio.sleep(0.2)
    except TimeoutError:
        return [*problems, f"{chats} chats should be subscribed to, the database has {states}"]
    finally:
        await connection.close()


async def _last_totals(world: ChaosWorld) -> dict[str, float]:
    """Return the NTF router's accounting once nothing comes, and all that came has its outcome.

    Before the SMP routers stop, it may grow although all messages have arrived: a queue that is subscribed to again
    brings notifications of messages that a phone has fetched without them.
    """
    totals = await world.accounting()
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while True:
                await asyncio.sleep(0.5)
                before, totals = totals, await world.accounting()
                if totals == before and not totals["pending"]:
                    break
    return totals


async def _stop(routers: Iterable[RouterPlace]) -> None:
    """Stop gracefully, so that the event logs are complete."""
    for router in routers:
        if router.process is not None:
            process, router.process = router.process, None
            await process.stop()


def _outcomes(world: ChaosWorld, smp: EventAccount, ntf: EventAccount) -> list[str]:
    """Every notification that left an SMP router has an outcome, also without a token if some were lost."""
    outcomes = (*ENDS, Stage.UNKNOWN_QUEUE) if world.tokens_lost else tuple(ENDS)
    sent = smp.having(Stage.SENT)
    missing = len(sent - smp.having(Stage.DROPPED, Stage.EXPIRED) - ntf.having(*outcomes))
    if missing > world.ntf.events_lost:
        return [f"{missing} of {len(sent)} notifications that were sent have no outcome"]
    return []
