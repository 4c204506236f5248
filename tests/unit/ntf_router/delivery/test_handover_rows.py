"""Rows that a router hands over: what they show, what they hide, and who can open them."""

from __future__ import annotations

import os

import pytest

from tests.unit.ntf_router.store.samples import filler, queue, token
from tocsin.crypto.boxes import BoxKey
from tocsin.errors import BadBox, DecodeError
from tocsin.ntf_router.delivery.handover_rows import (
    HandedRow,
    RowKind,
    RowWriter,
    opened_message,
    opened_request,
    queue_text,
    read_row,
)
from tocsin.ntf_router.delivery.pushes import code_request
from tocsin.ntf_router.store.records import LastNotification, PendingNotification
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import notification_text

KEY = BoxKey(bytes(range(32)))
ROWS = RowWriter(KEY)


def pending(number: int, queue_name: object = 0) -> PendingNotification:
    wanted, nonce = queue(queue_name), filler(("nonce", number), 24)
    text = notification_text(wanted, 1, nonce, filler(("meta", number), 100))
    return PendingNotification(float(number), nonce, text, filler(("subscription", number), 24), wanted)


def last(number: int) -> LastNotification:
    made = pending(number, number)
    return LastNotification(made.received_at, made.nonce, made.text)


def message(number: int, name: str = "a", queue_name: object = 0, others: int = 0) -> bytes:
    made = [last(100 + each) for each in range(others)]
    randoms = os.urandom(24), os.urandom(24)
    return ROWS.message("life", number, token(name), pending(number, queue_name), made, 2, 1000.0, randoms)


def test_a_row_shows_what_the_job_spreads_and_merges_by() -> None:
    row = read_row(message(7))
    assert (row.epoch, row.id, row.kind, row.received_at, row.attempt) == ("life", 7, "message", 7.0, 2)
    assert row.provider == PushProvider.APNS_PROD.text
    other = read_row(message(8))
    assert (other.token, other.queue) == (row.token, row.queue)
    assert other.notification != row.notification
    assert read_row(message(9, "b", 1)).token != row.token
    assert read_row(message(9, "a", 1)).queue != row.queue


def test_a_row_holds_no_secret_in_clear() -> None:
    line, owner, pushed = message(1, others=2), token("a"), pending(1)
    secrets = [owner.token_id, owner.dh_secret, pushed.nonce, pushed.text, pushed.queue.notifier_id]
    for secret in secrets:
        for shown in (secret, secret.hex().encode()):
            assert shown not in line
    assert owner.device_token.token not in line
    assert queue_text(pushed.text) not in line
    assert line.count(b"\n") == 1


def test_only_the_key_opens_a_row() -> None:
    row, owner = read_row(message(1, others=8)), token("a")
    opened = opened_message(row, KEY)
    assert (opened.device_token, opened.dh_secret) == (owner.device_token.token, owner.dh_secret)
    assert (opened.nonce, opened.text) == (pending(1).nonce, pending(1).text)
    assert [each.received_at for each in opened.others] == [102.0 + each for each in range(6)]
    with pytest.raises(BadBox):
        opened_message(row, BoxKey(bytes(32)))
    assert owner.device_token.token.decode() not in repr(opened)


def test_a_verification_push_travels_whole() -> None:
    owner = token("a")
    request = code_request(owner, os.urandom(24), 4_000_000_000)
    provider = owner.device_token.provider
    line = ROWS.control("life", 3, RowKind.VERIFICATION, provider, request, os.urandom(24))
    row = read_row(line)
    assert (row.kind, row.provider) == ("verification", provider.text)
    assert opened_request(row, KEY) == request
    assert request.device_token not in line


def test_rows_of_another_version_are_told() -> None:
    row = read_row(message(1))
    with pytest.raises(DecodeError, match="another version"):
        opened_request(row, KEY)


@pytest.mark.parametrize("line", [b"", b"{", b"{}", b"[]", b'["life","1","message"]', b'["life",1]'])
def test_lines_that_are_no_rows_are_refused(line: bytes) -> None:
    with pytest.raises(DecodeError):
        read_row(line)


def test_the_row_that_begins_an_epoch_has_no_secrets() -> None:
    assert read_row(ROWS.begin("life", 5)) == HandedRow("life", 5, "begin")
