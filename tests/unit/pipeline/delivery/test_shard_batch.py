"""A batch of a shard: what it takes, what it pushes, and what it keeps."""

from __future__ import annotations

import pytest

from tests.doubles.push_provider import RecordingProvider
from tests.unit.ntf_router.store.samples import token
from tests.unit.pipeline.delivery.test_token_pushes import KEY, NOW, notification, rows_of
from tocsin.ntf_router.delivery.handover_rows import HandedRow, RowKind, RowWriter, read_row
from tocsin.ntf_router.delivery.pushes import code_request
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.store.records import DuePush
from tocsin.pipeline.delivery import shard_batch
from tocsin.pipeline.delivery.shard_batch import MANY_FAILURES, RouterRow, ShardBatch
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import Provider, RetryLater, RetryScope

BEGIN = HandedRow("new", 0, RowKind.BEGIN)
TOKEN_LATER = RetryLater("429", RetryScope.TOKEN)
DOWN = RetryLater("connection", RetryScope.PROVIDER)
BACK_OFF = 5.0


def handed(name: str, number: int = 1, attempt: int = 0) -> HandedRow:
    """A notification of a token, with a queue of its own."""
    due = DuePush(token(name), (notification(number, 20, pending=True, at=float(number)),))
    [row] = rows_of(due, number, attempt)
    return row


async def pushed(
    state: bytes,
    rows: list[HandedRow],
    provider: RecordingProvider,
    *,
    now: float = NOW,
    patience: float = 5.0,
    router: str = "r",
) -> ShardBatch:
    batch = ShardBatch(state, {router: KEY}, DeliverySettings(), now)
    batch.take(RouterRow(router, number, row) for number, row in enumerate(rows))
    providers: dict[PushProvider, Provider] = {PushProvider.APNS_PROD: provider}
    await batch.push(providers, patience)
    return batch


def outcomes(batch: ShardBatch) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(answer.outcome, answer.reason, answer.ids) for _, answer in batch.answers]


async def test_a_batch_without_trouble_leaves_no_state() -> None:
    provider = RecordingProvider()
    batch = await pushed(b"", [handed("a", 1), handed("b", 2), handed("a", 3)], provider)
    assert sorted(answer.ids for _, answer in batch.answers) == [(1, 3), (2,)]
    assert (batch.state, batch.changed, batch.due_at, batch.waiting) == (b"", False, None, 0)
    assert len(provider.sent) == 2


async def test_a_token_in_back_off_is_the_state_until_it_is_due() -> None:
    provider = RecordingProvider()
    provider.answers.extend([TOKEN_LATER, TOKEN_LATER])
    first = await pushed(b"", [handed("a")], provider)
    assert first.changed
    assert first.due_at is not None
    assert first.due_at >= NOW + 2
    idle = await pushed(first.state, [handed("b")], provider, now=NOW + 1)
    assert not idle.changed
    assert len(provider.sent) == 3
    newer = await pushed(first.state, [handed("a", 2)], provider, now=NOW + 1)
    assert outcomes(newer) == [("retry", "backing_off", (2,))]
    assert newer.waiting == 1
    assert len(provider.sent) == 3
    due = await pushed(newer.state, [], provider, now=NOW + BACK_OFF)
    assert outcomes(due) == [("accepted", "", (1, 2))]
    assert (due.state, due.changed) == (b"", True)


async def test_a_new_epoch_forgets_the_old_one() -> None:
    provider = RecordingProvider()
    provider.answers.extend([TOKEN_LATER, TOKEN_LATER])
    waiting = await pushed(b"", [handed("a")], provider)
    later = HandedRow("new", 5, *list(_fields(handed("b", 5)))[2:])
    batch = await pushed(waiting.state, [handed("c", 2), BEGIN, later], provider, now=NOW + BACK_OFF)
    assert outcomes(batch) == [("begun", "", (0,)), ("accepted", "", (5,))]
    assert batch.state == b""
    assert len(provider.sent) == 3


def _fields(row: HandedRow) -> list[object]:
    return [getattr(row, name) for name in row.__struct_fields__]


async def test_a_router_that_is_not_served_any_more_leaves_nothing() -> None:
    provider = RecordingProvider()
    provider.answers.extend([TOKEN_LATER, TOKEN_LATER])
    waiting = await pushed(b"", [handed("a")], provider)
    batch = await pushed(waiting.state, [], provider, router="other", now=NOW + BACK_OFF)
    assert (batch.state, batch.answers) == (b"", [])


async def test_an_outage_of_a_provider_neither_fills_the_state_nor_tries_everything() -> None:
    provider = RecordingProvider()
    provider.answers.extend([DOWN] * 10_000)
    tokens = 2_000
    batch = await pushed(b"", [handed(f"t{number}", number) for number in range(tokens)], provider)
    assert (batch.state, batch.waiting) == (b"", 0)
    assert len(provider.sent) < MANY_FAILURES + 2 * shard_batch.AT_ONCE
    final = {number for _, answer in batch.answers if answer.due_in is None for number in answer.ids}
    assert final == set(range(tokens))
    assert sum(answer.pushed for _, answer in batch.answers) == len(provider.sent)


async def test_the_state_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_batch, "MOST_WAITING", 3)
    provider = RecordingProvider()
    provider.answers.extend([TOKEN_LATER] * 20)
    batch = await pushed(b"", [handed(f"t{number}", number) for number in range(10)], provider)
    assert batch.waiting == 3
    given_back = [answer for _, answer in batch.answers if answer.due_in is None]
    assert len(given_back) == 7
    more = RecordingProvider()
    more.answers.extend([TOKEN_LATER] * 4)
    rows = [handed(f"u{number}", 100 + number) for number in range(2)]
    again = await pushed(batch.state, rows, more, now=NOW + 1)
    assert again.waiting == 3
    assert not again.changed


async def test_what_has_no_answer_in_time_is_pushed_in_the_next_batch() -> None:
    provider = RecordingProvider()
    provider.hold()
    batch = await pushed(b"", [handed("a")], provider, patience=0.01)
    assert outcomes(batch) == [("retry", "timeout", (1,))]
    assert batch.due_at is not None
    assert batch.due_at <= NOW
    provider.release()
    again = await pushed(batch.state, [], provider)
    assert outcomes(again) == [("accepted", "", (1,))]
    assert provider.sent[0] == provider.sent[1]


async def test_what_has_no_room_in_time_goes_back_without_an_attempt() -> None:
    class Full(RecordingProvider):
        async def wait_for_room(self) -> None:
            await super().next_request(b"never")

    provider = Full()
    provider.room = 0
    batch = await pushed(b"", [handed("a")], provider, patience=0.01)
    assert outcomes(batch) == [("retry", "no_room", (1,))]
    assert [answer.pushed for _, answer in batch.answers] == [False]


async def test_a_provider_that_is_not_configured_is_the_routers_affair() -> None:
    batch = ShardBatch(b"", {"r": KEY}, DeliverySettings(), NOW)
    batch.take([RouterRow("r", 1, handed("a"))])
    await batch.push({}, 1.0)
    assert outcomes(batch) == [("retry", "not_served", (1,))]


async def test_control_pushes_get_a_share_and_one_attempt() -> None:
    provider = RecordingProvider()
    writer, owner = RowWriter(KEY), token("z")
    request = code_request(owner, bytes(24), 4_000_000_000)
    line = writer.control("life", 50, RowKind.VERIFICATION, PushProvider.APNS_PROD, request, bytes(24))
    provider.answers.extend([DOWN] * 0)
    rows = [handed(f"t{number}", number) for number in range(9)]
    batch = await pushed(b"", [*rows, read_row(line)], provider)
    assert provider.sent[3] == request
    assert ("accepted", "", (50,)) in outcomes(batch)
    provider.answers.append(TOKEN_LATER)
    batch = await pushed(b"", [read_row(line)], provider)
    assert outcomes(batch) == [("retry", "429", (50,))]
    assert batch.state == b""
