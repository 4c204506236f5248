"""What every store of an agent does. There is one so far: SQLite, plain and encrypted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.agent_samples import (
    NOTIFIER,
    NTF,
    OTHER_NTF,
    OTHER_SMP,
    SMP,
    agent_token,
    named,
    receive_queue,
    send_queue,
    subscription,
)
from tocsin.agent.store.interface import AgentStore, Completion
from tocsin.agent.store.records import (
    AgentConnection,
    EndpointSecret,
    KeptMessage,
    NextAction,
    NotificationMode,
    NotifiedQueue,
    PriorityChange,
    QueueNotifier,
    RegistrationDue,
    SubscriptionPhase,
    VerificationDue,
)
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.errors import StoreError
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import (
    InvalidReason,
    SubscriptionFailed,
    SubscriptionState,
    TokenState,
    TokenStatus,
)
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

ALL, MENTIONS, OFF = MinimumPriority.ALL, MinimumPriority.PRIORITY, MinimumPriority.OFF
WEAK = 2
"""Of scrypt, so that tests are quick."""


@pytest.fixture(params=[None, "a passphrase"], ids=["plain", "encrypted"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgentStore]:
    async with opened_agent_store(tmp_path / "agent.db", passphrase=request.param, scrypt_n=WEAK) as opened:
        yield opened


# Connections


async def test_connection_comes_back_with_its_queues(store: AgentStore) -> None:
    receive, send = receive_queue("a", notifier=NOTIFIER, last_message_at=7), send_queue("a")
    await store.add_connection(AgentConnection("a", notifications=False), receive, send)
    assert await store.connection("a") == AgentConnection("a", notifications=False)
    assert await store.connections() == [AgentConnection("a", notifications=False)]
    assert await store.receive_queues("a") == [receive]
    assert await store.send_queues("a") == [send]
    assert await store.connection("b") is None


async def test_connection_that_exists_is_not_added_again(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), None, None)
    with pytest.raises(StoreError):
        await store.add_connection(AgentConnection("a"), receive_queue("a"), None)
    assert await store.receive_queues("a") == []


async def test_deleted_connection_takes_its_queues_and_its_subscription_along(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a"), send_queue("a"))
    await store.put_subscriptions([subscription("a")])
    await store.delete_connection("a")
    assert await store.connection("a") is None
    assert await store.receive_queues("a") == []
    assert await store.send_queues("a") == []
    assert await store.subscription("a") is None


async def test_notifications_are_switched_once(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), None, None)
    assert await store.set_notifications("a", False)
    assert not await store.set_notifications("a", False)
    assert await store.connection("a") == AgentConnection("a", notifications=False)


async def test_minimum_priority_is_kept_with_the_connection(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), None, None)
    assert await store.set_notifications("a", True, MENTIONS)
    assert not await store.set_notifications("a", True, MENTIONS)
    assert await store.connection("a") == AgentConnection("a", True, MENTIONS)
    assert await store.set_notifications("a", False)
    assert await store.connection("a") == AgentConnection("a", False)


# Priorities


async def changes(store: AgentStore) -> list[PriorityChange]:
    found = [each for router in (SMP, OTHER_SMP) for each in await store.priority_changes(router)]
    routers = await store.routers_with_priority_changes()
    assert routers == [router for router in (OTHER_SMP, SMP) if await store.priority_changes(router)]
    return found


async def test_what_an_smp_router_is_to_be_told_is_where_wish_and_notifier_differ(store: AgentStore) -> None:
    queue = receive_queue("a", notifier=NOTIFIER)
    await store.add_connection(AgentConnection("a"), queue, None)
    await store.add_connection(AgentConnection("b", notifications=False), receive_queue("b"), None)
    assert await changes(store) == [], "nothing to be told without a notifier"
    await store.set_notifications("a", False)
    change = PriorityChange("a", 1, queue.recipient_id, queue.key, NOTIFIER.notifier_id, ALL, OFF)
    assert await changes(store) == [change]
    await store.set_notifications("a", True)
    assert await changes(store) == []
    await store.set_notifications("a", True, MENTIONS)
    assert await changes(store) == [replace(change, wanted=MENTIONS)]
    await store.priorities_set([replace(change, wanted=MENTIONS)])
    assert await changes(store) == []
    [told] = await store.primary_queues(["a"])
    assert told.notifier == replace(NOTIFIER, minimum=MENTIONS)


async def test_change_of_a_wish_while_another_was_told_is_still_to_be_told(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a", notifier=NOTIFIER), None)
    await store.set_notifications("a", False)
    [told] = await changes(store)
    await store.set_notifications("a", True, MENTIONS)
    await store.priorities_set([told])
    [change] = await changes(store)
    assert (change.present, change.wanted) == (OFF, MENTIONS)


async def give_notifier(store: AgentStore, connection_id: str, number: int, notifier: QueueNotifier) -> None:
    """As a worker does that has created one."""
    wanted = subscription(connection_id)
    [row] = await store.put_subscriptions([wanted]) or [wanted]
    queue = receive_queue(connection_id, number, notifier=notifier)
    await store.complete([Completion(row, row, queue)])


async def test_minimum_goes_with_its_notifier(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a", notifier=NOTIFIER), None)
    await store.set_notifications("a", True, MENTIONS)
    [told] = await changes(store)
    another = QueueNotifier(b"o" * 24, None, b"secret")
    await give_notifier(store, "a", 1, another)
    await store.priorities_set([told])
    [change] = await changes(store)
    assert (change.notifier_id, change.present) == (another.notifier_id, ALL)
    await give_notifier(store, "a", 1, replace(another, minimum=MENTIONS))
    assert await changes(store) == []
    await store.set_notifications("a", False)
    await store.clear_notifiers(["a"])
    assert await changes(store) == []


async def test_only_the_primary_queue_is_told(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a", notifier=NOTIFIER), None)
    await store.set_notifications("a", False)
    await store.add_receive_queue(receive_queue("a", 2, router=OTHER_SMP))
    assert await changes(store) == []
    await give_notifier(store, "a", 2, QueueNotifier(b"o" * 24, None, b"secret"))
    assert [change.number for change in await changes(store)] == [2]
    await store.delete_connection("a")
    assert await changes(store) == []


async def test_direct_notifier_has_no_key(store: AgentStore) -> None:
    queue = receive_queue("a", notifier=QueueNotifier(b"o" * 24, None, b"secret", OFF))
    await store.add_connection(AgentConnection("a", notifications=False), queue, None)
    assert await store.receive_queues("a") == [queue]
    assert queue.notifier is not None
    assert queue.notifier.direct
    assert not NOTIFIER.direct
    assert await store.notified_queues([named(queue)]) == [NotifiedQueue("a", 1, b"secret")]


async def test_token_is_kept_with_the_key_for_packets(store: AgentStore) -> None:
    token = agent_token(ntf_key=NtfKeyOffer(X25519PrivateKey(b"k" * 32).public, 1_800_000_000))
    await store.save_token(token)
    assert await store.token() == token
    await store.save_token(agent_token())
    assert await store.token() == agent_token()


async def test_new_primary_queue_takes_the_place_of_the_old_one(store: AgentStore) -> None:
    old, new = receive_queue("a"), receive_queue("a", 2, router=OTHER_SMP)
    await store.add_connection(AgentConnection("a"), old, None)
    await store.add_receive_queue(new)
    assert await store.receive_queues("a") == [new, replace(old, primary=False)]
    assert await store.primary_queues(["a", "unknown"]) == [new]
    await store.delete_receive_queue("a", 1)
    assert await store.receive_queues("a") == [new]


async def test_queue_becomes_primary_when_it_is_in_use(store: AgentStore) -> None:
    old, new = receive_queue("a"), receive_queue("a", 2, primary=False)
    await store.add_connection(AgentConnection("a"), old, None)
    await store.add_receive_queue(new)
    assert await store.receive_queues("a") == [old, new]
    await store.set_primary("a", 2)
    assert await store.receive_queues("a") == [replace(new, primary=True), replace(old, primary=False)]
    await store.set_primary("a", 7)
    assert [queue.number for queue in await store.primary_queues(["a"])] == [2]


async def test_queues_are_found_by_their_notifiers_whatever_the_key_hash(store: AgentStore) -> None:
    queue = receive_queue("a", notifier=NOTIFIER, last_message_at=7, last_message_id=b"7th")
    await store.add_connection(AgentConnection("a"), queue, None)
    asked = [
        named(queue),
        NotifierQueue(replace(SMP, key_hash=b"x" * 32), NOTIFIER.notifier_id),
        NotifierQueue(OTHER_SMP, NOTIFIER.notifier_id),
        NotifierQueue(replace(SMP, port="1"), NOTIFIER.notifier_id),
    ]
    found = NotifiedQueue("a", 1, NOTIFIER.secret, 7, b"7th")
    assert await store.notified_queues(asked) == [found, found, None, None]
    assert await store.notified_queues([]) == []


async def test_queue_of_a_legacy_router_is_found_as_pushes_name_it(store: AgentStore) -> None:
    router = replace(SMP, hosts=("smp4.simplex.im",))
    queue = receive_queue("a", router=router, notifier=NOTIFIER)
    await store.add_connection(AgentConnection("a"), queue, None)
    [found] = await store.notified_queues([NotifierQueue.parse(named(queue).text())])
    assert found == NotifiedQueue("a", 1, NOTIFIER.secret)


async def test_notifier_is_set_and_cleared(store: AgentStore) -> None:
    queue = receive_queue("a")
    await store.add_connection(AgentConnection("a"), queue, None)
    await give_notifier(store, "a", 1, NOTIFIER)
    asked = [named(replace(queue, notifier=NOTIFIER))]
    assert await store.notified_queues(asked) != [None]
    await store.clear_notifiers(["a"])
    assert await store.notified_queues(asked) == [None]
    assert await store.receive_queues("a") == [queue]
    await give_notifier(store, "gone", 1, NOTIFIER)


async def test_notifier_id_that_comes_again_belongs_to_the_queue_that_has_it_now(store: AgentStore) -> None:
    first, second = receive_queue("a", notifier=NOTIFIER), receive_queue("b")
    await store.add_connection(AgentConnection("a"), first, None)
    await store.add_connection(AgentConnection("b"), second, None)
    await give_notifier(store, "b", 1, NOTIFIER)
    [found] = await store.notified_queues([named(first)])
    assert found is not None
    assert found.connection_id == "b"
    assert (await store.receive_queues("a"))[0].notifier is None


async def test_time_of_the_last_message_never_goes_back(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a"), None)
    for sent_at, kept in ((5, 5), (3, 5), (9, 9)):
        await store.message_received("a", 1, sent_at)
        assert (await store.receive_queues("a"))[0].last_message_at == kept


async def test_queues_are_secured(store: AgentStore) -> None:
    receive, send = receive_queue("a"), send_queue("a")
    await store.add_connection(AgentConnection("a"), receive, send)
    await store.secure_queue("a", 1, b"sender's key")
    assert await store.receive_queues("a") == [replace(receive, sender_key=b"sender's key")]
    await store.update_send_queue(replace(send, secured=True))
    assert await store.send_queues("a") == [replace(send, secured=True)]
    await store.add_send_queue(send_queue("a", 2))
    await store.delete_send_queue("a", 1)
    assert [queue.number for queue in await store.send_queues("a")] == [2]


async def test_connections_with_something_left_to_do_are_told(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a"), send_queue("a", secured=True))
    assert await store.unfinished_connections() == []
    await store.add_connection(AgentConnection("b"), receive_queue("b"), send_queue("b"))
    await store.add_receive_queue(receive_queue("a", 2, primary=False))
    assert await store.unfinished_connections() == ["a", "b"]


# Messages


async def test_message_is_kept_until_it_is_forgotten(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a"), None)
    wanted = [
        KeptMessage("a", 1, b"1", 7, b"hello"),
        KeptMessage("a", 1, b"0", 7, b"@a", priority=2),
        KeptMessage("a", 1, b"2", None, None, "it cannot be decrypted"),
    ]
    kept = [await store.keep_message(each) for each in wanted]
    numbers = [each.number for each in kept if each is not None]
    assert await store.kept_messages() == kept
    assert kept == [replace(each, number=number) for each, number in zip(wanted, numbers, strict=True)]
    [queue] = await store.receive_queues("a")
    assert (queue.last_message_at, queue.last_message_id) == (7, b"2")
    await store.forget_messages(numbers)
    assert await store.kept_messages() == []
    third = await store.keep_message(KeptMessage("a", 1, b"3", 8, b"again"))
    assert third is not None
    assert third.number not in numbers


async def test_last_message_is_kept_once(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a"), None)
    message = KeptMessage("a", 1, b"1", 7, b"hello")
    kept = await store.keep_message(message)
    assert kept is not None
    assert await store.keep_message(message) == kept
    assert await store.kept_messages() == [kept]
    await store.forget_messages([kept.number])
    assert await store.keep_message(message) is None


async def test_messages_go_with_their_connection(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), receive_queue("a"), None)
    await store.keep_message(KeptMessage("a", 1, b"1", 7, b"hello"))
    await store.delete_connection("a")
    assert await store.kept_messages() == []
    assert await store.keep_message(KeptMessage("a", 1, b"2", 7, b"too late")) is None


# The token


@pytest.mark.parametrize("action", [None, RegistrationDue(), VerificationDue(b"the code")])
async def test_token_comes_back_whatever_it_waits_for(
    store: AgentStore, action: RegistrationDue | VerificationDue | None
) -> None:
    token = agent_token(action=action, status=TokenStatus(TokenState.INVALID, InvalidReason.TOPIC))
    await store.save_token(token)
    assert await store.token() == token


async def test_there_is_one_token_at_most(store: AgentStore) -> None:
    await store.save_token(agent_token())
    await store.save_token(agent_token(mode=NotificationMode.PERIODIC, token_id=None, secret=None))
    assert await store.token() == agent_token(mode=NotificationMode.PERIODIC, token_id=None, secret=None)


async def test_removed_token_is_remembered_until_it_is_deleted_at_its_router(store: AgentStore) -> None:
    await store.save_token(agent_token())
    kept = await store.remove_token(delete_at_router=True, now=50)
    assert await store.token() is None
    assert kept is not None
    assert (kept.router, kept.token_id, kept.key, kept.created_at) == (NTF, b"t" * 24, b"token key", 50)
    assert await store.tokens_to_delete() == [kept]
    assert await store.forget_tokens_to_delete(50) == 0
    await store.token_deleted(kept.number)
    assert await store.tokens_to_delete() == []


@pytest.mark.parametrize("registered", [True, False])
async def test_token_without_an_id_or_not_to_be_deleted_leaves_nothing(
    store: AgentStore, registered: bool
) -> None:
    await store.save_token(agent_token(token_id=b"t" * 24 if registered else None))
    assert await store.remove_token(delete_at_router=not registered, now=50) is None
    assert await store.tokens_to_delete() == []
    assert await store.token() is None


async def test_tokens_to_delete_are_forgotten_with_time(store: AgentStore) -> None:
    for now in (10, 20):
        await store.save_token(agent_token())
        await store.remove_token(delete_at_router=True, now=now)
    assert await store.forget_tokens_to_delete(20) == 1
    assert [token.created_at for token in await store.tokens_to_delete()] == [20]


# Web Push endpoints


def endpoint(name: str) -> EndpointSecret:
    device = DeviceToken(PushProvider.WEBPUSH, b"keys and endpoint " + name.encode())
    return EndpointSecret(device, b"secret " + name.encode())


async def test_secrets_of_endpoints_come_back_newest_first(store: AgentStore) -> None:
    assert await store.endpoint_secrets() == []
    for name in "abc":
        await store.keep_endpoint_secret(endpoint(name), most=9)
    assert await store.endpoint_secrets() == [endpoint("c"), endpoint("b"), endpoint("a")]
    await store.forget_endpoint_secrets()
    assert await store.endpoint_secrets() == []
    await store.keep_endpoint_secret(endpoint("d"), most=9)
    assert await store.endpoint_secrets() == [endpoint("d")]


async def test_endpoint_that_is_used_again_is_the_newest_and_there_once(store: AgentStore) -> None:
    for name in ("a", "b", "c", "a"):
        await store.keep_endpoint_secret(endpoint(name), most=3)
    assert await store.endpoint_secrets() == [endpoint("a"), endpoint("c"), endpoint("b")]
    other = replace(endpoint("a"), secret=b"another")
    await store.keep_endpoint_secret(other, most=3)
    assert await store.endpoint_secrets() == [other, endpoint("c"), endpoint("b")]


async def test_oldest_secrets_go_but_not_that_of_the_token(store: AgentStore) -> None:
    await store.save_token(agent_token(device_token=endpoint("b").device_token))
    for name in "abcdef":
        await store.keep_endpoint_secret(endpoint(name), most=3)
    assert await store.endpoint_secrets() == [endpoint(name) for name in "fedb"]
    await store.save_token(agent_token(device_token=endpoint("f").device_token))
    await store.keep_endpoint_secret(endpoint("g"), most=3)
    assert await store.endpoint_secrets() == [endpoint(name) for name in "gfe"]


async def test_secrets_of_endpoints_outlive_the_token(store: AgentStore) -> None:
    await store.save_token(agent_token(device_token=endpoint("a").device_token))
    await store.keep_endpoint_secret(endpoint("a"), most=3)
    await store.remove_token(delete_at_router=True, now=1)
    assert await store.endpoint_secrets() == [endpoint("a")], "it may be registered anew"


# Subscriptions


async def subscribed(store: AgentStore, *connection_ids: str) -> None:
    for connection_id in connection_ids:
        await store.add_connection(AgentConnection(connection_id), receive_queue(connection_id), None)


async def test_subscription_comes_back_with_the_next_version(store: AgentStore) -> None:
    await subscribed(store, "a")
    full = subscription(
        "a",
        phase=SubscriptionPhase.CREATED,
        action=NextAction.CHECK,
        due_at=12.5,
        notifier_id=b"n",
        subscription_id=b"s",
        token_id=b"t",
        status=SubscriptionFailed("some text"),
    )
    assert await store.put_subscriptions([full]) == [replace(full, version=1)]
    assert await store.put_subscriptions([replace(full, action=None)]) == [
        replace(full, action=None, version=2)
    ]
    assert await store.subscriptions() == [replace(full, action=None, version=2)]


async def test_actions_come_oldest_first_by_router_and_side(store: AgentStore) -> None:
    await subscribed(store, *"abcdef")
    await store.put_subscriptions(
        [
            subscription("a", due_at=30.0),
            subscription("b", due_at=20.0, action=NextAction.DELETE_KEYS),
            subscription("c", action=NextAction.SUBSCRIBE),
            subscription("d", smp_router=OTHER_SMP),
            subscription("e", action=None),
            subscription("f", action=NextAction.SUBSCRIBE, ntf_router=OTHER_NTF),
        ]
    )

    async def due(router: RouterLocation, at_smp_router: bool, limit: int = 10) -> str:
        found = await store.due_actions(router, at_smp_router=at_smp_router, now=0.0, limit=limit)
        return "".join(each.connection_id for each in found)

    assert await due(SMP, True) == "ba"
    assert await due(SMP, True, 1) == "b"
    assert await due(OTHER_SMP, True) == "d"
    assert await due(NTF, False) == "c"
    assert set(await store.routers_with_actions(at_smp_router=True)) == {OTHER_SMP, SMP}
    assert set(await store.routers_with_actions(at_smp_router=False)) == {NTF, OTHER_NTF}


async def test_only_checks_wait_for_their_time(store: AgentStore) -> None:
    await subscribed(store, "a", "b")
    assert await store.next_due_at(NTF, at_smp_router=False) is None
    await store.put_subscriptions([subscription("a", action=NextAction.CHECK, due_at=500.0)])
    assert await store.next_due_at(NTF, at_smp_router=False) == 500.0
    assert await store.due_actions(NTF, at_smp_router=False, now=499.0, limit=9) == []
    assert len(await store.due_actions(NTF, at_smp_router=False, now=500.0, limit=9)) == 1
    await store.put_subscriptions([subscription("b", action=NextAction.SUBSCRIBE, due_at=900.0)])
    assert await store.next_due_at(NTF, at_smp_router=False) == 0
    assert len(await store.due_actions(NTF, at_smp_router=False, now=0.0, limit=9)) == 1


async def test_asking_about_a_packet_waits_for_its_time(store: AgentStore) -> None:
    await store.add_connection(AgentConnection("a"), None, None)
    await store.put_subscriptions([subscription("a", action=NextAction.ASK_FATE, due_at=500.0)])
    assert await store.next_due_at(SMP, at_smp_router=True) == 500.0
    assert await store.due_actions(SMP, at_smp_router=True, now=499.0, limit=9) == []
    assert len(await store.due_actions(SMP, at_smp_router=True, now=500.0, limit=9)) == 1


@pytest.mark.parametrize("action", NextAction)
async def test_every_action_is_found_on_its_side(store: AgentStore, action: NextAction) -> None:
    await store.add_connection(AgentConnection("a"), None, None)
    await store.put_subscriptions([subscription("a", action=action)])
    here, there = (SMP, NTF) if action.at_smp_router else (NTF, SMP)
    [row] = await store.due_actions(here, at_smp_router=action.at_smp_router, now=900.0, limit=9)
    assert row.action is action
    assert await store.due_actions(there, at_smp_router=not action.at_smp_router, now=900.0, limit=9) == []
    assert await store.routers_with_actions(at_smp_router=action.at_smp_router) == [here]


async def test_completed_action_is_replaced_with_what_follows(store: AgentStore) -> None:
    await subscribed(store, "a")
    [done] = await store.put_subscriptions([subscription("a")])
    [queue] = await store.receive_queues("a")
    then = replace(done, action=NextAction.SUBSCRIBE, phase=SubscriptionPhase.KEY, notifier_id=b"n" * 24)
    assert await store.complete([Completion(done, then, replace(queue, notifier=NOTIFIER))]) == [True]
    assert await store.subscription("a") == replace(then, version=2)
    assert await store.receive_queues("a") == [replace(queue, notifier=NOTIFIER)]


async def test_completed_deletion_removes_the_row(store: AgentStore) -> None:
    await subscribed(store, "a", "b")
    [done, other] = await store.put_subscriptions([subscription("a"), subscription("b")])
    assert await store.complete([Completion(done, None)]) == [True]
    assert await store.subscriptions() == [other]


async def test_D05_supervisors_action_stays_when_a_worker_finishes_the_one_it_replaced(
    store: AgentStore,
) -> None:
    """D5: what was stored last is done."""
    await subscribed(store, "a")
    [done] = await store.put_subscriptions([subscription("a")])
    await store.put_subscriptions([replace(done, action=NextAction.DELETE_KEYS, due_at=200.0)])
    notifier = QueueNotifier(b"new", b"k", b"s")
    [queue] = await store.receive_queues("a")
    then = replace(done, action=NextAction.SUBSCRIBE, phase=SubscriptionPhase.KEY, notifier_id=b"new")
    assert await store.complete([Completion(done, then, replace(queue, notifier=notifier))]) == [False]
    row = await store.subscription("a")
    assert row is not None
    assert (row.action, row.due_at) == (NextAction.DELETE_KEYS, 200.0)
    assert (row.phase, row.notifier_id) == (SubscriptionPhase.KEY, b"new")
    assert (await store.receive_queues("a"))[0].notifier == notifier, "the SMP router has this one now"


async def test_row_that_was_to_be_deleted_stays_without_ids_if_the_supervisor_wants_it_again(
    store: AgentStore,
) -> None:
    await subscribed(store, "a")
    [done] = await store.put_subscriptions(
        [
            subscription(
                "a",
                action=NextAction.DELETE_KEYS,
                notifier_id=b"n",
                subscription_id=b"s",
                token_id=b"t",
                status=SubscriptionState.ACTIVE,
            )
        ]
    )
    [wanted] = await store.put_subscriptions([subscription("a", ntf_router=OTHER_NTF)])
    assert await store.complete([Completion(done, None)]) == [False]
    row = await store.subscription("a")
    assert row == replace(wanted, phase=SubscriptionPhase.DELETED, version=wanted.version + 1)


async def test_late_result_does_not_overwrite_what_others_found_meanwhile(store: AgentStore) -> None:
    await subscribed(store, "a")
    key = subscription("a", action=NextAction.SUBSCRIBE, phase=SubscriptionPhase.KEY, notifier_id=b"old")
    [done] = await store.put_subscriptions([key])
    [row] = await store.put_subscriptions([replace(key, notifier_id=b"new")])
    late = replace(done, subscription_id=b"s", phase=SubscriptionPhase.CREATED, action=NextAction.CHECK)
    assert await store.complete([Completion(done, late)]) == [False]
    now = await store.subscription("a")
    assert now is not None
    assert (now.notifier_id, now.subscription_id, now.action) == (b"new", b"s", NextAction.SUBSCRIBE)
    assert now.version == row.version + 1


async def test_completion_of_a_row_that_is_gone_changes_nothing(store: AgentStore) -> None:
    await subscribed(store, "a")
    [done] = await store.put_subscriptions([subscription("a")])
    assert await store.complete([Completion(done, None)]) == [True]
    assert await store.complete([Completion(done, done)]) == [False]
    assert await store.subscriptions() == []


async def test_subscription_of_a_connection_that_is_gone_is_left_out(store: AgentStore) -> None:
    await subscribed(store, "a")
    written = await store.put_subscriptions([subscription("nobody"), subscription("a")])
    assert await store.subscriptions(["nobody", "a"]) == written
    assert [row.connection_id for row in written] == ["a"]


async def test_closed_store_says_so(store: AgentStore) -> None:
    await store.token()
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.token()
