"""The verdict: what must be true when the faults are over, the traffic has stopped and some time has passed."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from chaos.world import SCHEMA, ChaosWorld, at_rest
from tocsin.agent.store.records import NextAction
from tocsin.errors import TocsinError
from tocsin.events.delivery_events import ENDS, DeliveryEvent, Stage, decode_event
from tocsin.events.event_log import PUBLISHED
from tocsin.protocol.ntf.statuses import TokenState


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


async def verdict(world: ChaosWorld, unsettled: list[str]) -> Verdict:
    """Compare the routers with the model, and the accounting with a recount from the event logs."""
    problems = list(unsettled)
    accounting = await world.accounting()
    if accounting["difference"]:
        problems.append(f"the accounting does not add up: {accounting}")
    problems += await _tokens_and_subscriptions(world)
    problems += await _stored_states(world)
    await _stop_routers(world)
    ntf = _events(world.events("ntf"))
    smp = [event for place in world.smp for event in _events(world.events(place.name))]
    problems += _recount(ntf, accounting, exactly=world.ntf.lives == 1)
    problems += _outcomes(smp, ntf, without_token=world.tokens_lost)
    if world.apns.broken:
        problems.append(f"the provider saw {len(world.apns.broken)} violations of HTTP/2")
    sent = sum(len(chat.answered) for phone in world.phones for chat in phone.chats)
    facts = {
        "messages": sent,
        "arrived": sum(len(chat.arrived) for phone in world.phones for chat in phone.chats),
        "pushes": sum(phone.pushes for phone in world.phones),
        **{name: int(value) for name, value in accounting.items()},
    }
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
        wanted = {phone.device_token for phone in world.phones}
        tokens = await connection.fetch("SELECT push_provider_token FROM tokens WHERE status = 'ACTIVE'")
        active = Counter(bytes(row[0]) for row in tokens)
        problems = (
            [f"{len(wanted - active.keys())} phones have no active token"] if wanted - active.keys() else []
        )
        problems += [f"{device!r} has {count} active tokens" for device, count in active.items() if count > 1]
        chats = sum([len(await phone.store.connections()) for phone in world.phones])
        async with asyncio.timeout(20):
            while True:
                rows = await connection.fetch(
                    "SELECT s.status, count(*) FROM subscriptions s JOIN tokens t ON t.token_id = s.token_id "
                    "WHERE t.push_provider_token = ANY($1::bytea[]) AND t.status = 'ACTIVE' GROUP BY s.status",
                    list(wanted),
                )
                states = {row[0]: row[1] for row in rows}
                if states.get("ACTIVE", 0) >= chats:
                    return problems
                await asyncio.sleep(0.2)
    except TimeoutError:
        return [*problems, f"{chats} chats should be subscribed to, the database has {states}"]
    finally:
        await connection.close()


async def _stop_routers(world: ChaosWorld) -> None:
    """Stop gracefully, so that the event logs are complete."""
    for router in world.routers:
        if router.process is not None:
            process, router.process = router.process, None
            await process.stop()


def _events(folder: Path) -> list[DeliveryEvent]:
    lines = [line for path in sorted(folder.glob(PUBLISHED)) for line in path.read_bytes().splitlines()]
    return [decode_event(line) for line in lines]


def _recount(events: list[DeliveryEvent], accounting: dict[str, float], *, exactly: bool) -> list[str]:
    """Recount from the events of the NTF router.

    A kill may repeat an event, and a router that was started again may receive a notification again that it had
    settled. So the store's totals lie between the number of different events and the number of all. In the first life
    of a router these are the same.
    """
    problems = []
    for stage, name in (
        (Stage.RECEIVED, "received"),
        (Stage.ACCEPTED, "accepted"),
        (Stage.SUPERSEDED, "superseded"),
    ):
        found = [event.notification for event in events if event.stage == stage]
        if not len(set(found)) <= accounting[name] <= (len(set(found)) if exactly else len(found)):
            problems.append(
                f"{name}: {accounting[name]:.0f} in the store, {len(set(found))} different ones and {len(found)} "
                "in all in the event log"
            )
    received = {event.notification for event in events if event.stage == Stage.RECEIVED}
    ended = {event.notification for event in events if event.stage in ENDS}
    if received != ended:
        problems.append(
            f"{len(received - ended)} notifications were received and have no outcome, "
            f"{len(ended - received)} have an outcome and were not received"
        )
    return problems


def _outcomes(smp: list[DeliveryEvent], ntf: list[DeliveryEvent], *, without_token: bool) -> list[str]:
    """Every notification that left an SMP router has an outcome. It may have come `without_token` if some were lost."""
    outcomes = (*ENDS, Stage.UNKNOWN_QUEUE) if without_token else ENDS
    sent = {event.notification for event in smp if event.stage == Stage.SENT}
    gone = {event.notification for event in smp if event.stage in (Stage.DROPPED, Stage.EXPIRED)}
    known = {event.notification for event in ntf if event.stage in outcomes}
    lost = sent - gone - known
    return [f"{len(lost)} of {len(sent)} notifications that were sent have no outcome"] if lost else []
