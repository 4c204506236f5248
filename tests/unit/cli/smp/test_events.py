"""The delivery event log of `tocsin smp start`."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.smp_harness import OK
from tests.doubles.smp_process import SmpFolders
from tocsin.events.delivery_events import Stage, decode_event
from tocsin.events.event_log import OPEN_PREFIX, PUBLISHED


async def test_the_router_writes_down_what_becomes_of_notifications(tmp_path: Path) -> None:
    folders = SmpFolders(tmp_path)
    events = tmp_path / "events"
    router = await folders.start(event_log=events, event_log_segment_seconds=600)
    try:
        client, notified = await router.connect(), await router.connect()
        queue = await client.secured_queue()
        notifier = await client.enable_notifications(queue)
        await notified.subscribe_notifier(notifier)
        assert await client.send_message(queue, b"hello", notify=True) == OK
        await notified.event()
        for each in (client, notified):
            each.connection.abort()
    finally:
        await router.stop()
    assert not list(events.glob(f"{OPEN_PREFIX}*"))
    lines = [line for path in sorted(events.glob(PUBLISHED)) for line in path.read_bytes().splitlines()]
    assert Stage.ENQUEUED in [decode_event(line).stage for line in lines]
    written = b"".join(path.read_bytes() for path in events.iterdir())
    assert notifier.notifier_id not in written
    assert oct((tmp_path / "events-keys").stat().st_mode & 0o777) == "0o700"
