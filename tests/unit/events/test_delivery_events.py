"""One line of the event log, there and back."""

from __future__ import annotations

import pytest

from tests.doubles.delivery_lines import encode_events
from tocsin.events.delivery_events import SCHEMA_VERSION, DeliveryEvent, Stage, decode_event

EVENT = DeliveryEvent(id="n.received", stage=Stage.RECEIVED, at=1, mono=2, router="r", period="1-aa")


def test_events_come_back_from_their_lines() -> None:
    full = DeliveryEvent(
        id="n.failed",
        stage=Stage.FAILED,
        at=1_794_749_273_216_037,
        mono=5,
        router="r",
        period="1-aa",
        notification="n",
        queue="q",
        token="t",
        smp_host="smp.example",
        provider="apns_prod",
        outcome="o",
        reason="token_invalid",
        attempt=3,
        engine="spark",
        batch="b",
        priority="p",
        size=144,
        from_status="ACTIVE",
        to_status="INVALID",
        cause="c",
    )
    lines = encode_events([EVENT, full]).splitlines()
    assert [decode_event(line) for line in lines] == [EVENT, full]


@pytest.mark.parametrize("version", ["", f',"version":{SCHEMA_VERSION - 1}', f',"version":{SCHEMA_VERSION}'])
def test_this_version_and_the_one_before_are_read(version: str) -> None:
    line = encode_events([EVENT]).replace(b'"period":"1-aa"', b'"period":"1-aa"' + version.encode())
    assert decode_event(line).engine == ""


def test_fields_that_do_not_apply_take_no_room() -> None:
    assert encode_events([EVENT]) == (
        b'{"id":"n.received","stage":"received","at":1,"mono":2,"router":"r","period":"1-aa"}\n'
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            encode_events([EVENT]).replace(b'"at":1', b'"at":1,"version":%d' % (SCHEMA_VERSION + 1)),
            f"version {SCHEMA_VERSION + 1}",
        ),
        (b"{}", "not a delivery event"),
        (b"[1]", "not a delivery event"),
        (b'{"id":"n.rec', "not a delivery event"),
        (encode_events([EVENT]).replace(b'"at":1', b'"at":"now"'), "not a delivery event"),
    ],
)
def test_other_lines_are_refused(line: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode_event(line)
