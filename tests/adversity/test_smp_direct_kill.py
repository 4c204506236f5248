"""Direct notifications of a router that is killed: what it has answered is true when it is started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.doubles.fake_ntf_forwardee import fake_ntf_forwardee
from tests.doubles.smp_direct import (
    DIRECT_ALPN,
    Wish,
    fate_of,
    ntf_credentials,
    send_with_priority,
    some_packet,
)
from tests.doubles.smp_harness import OK, until
from tests.doubles.smp_process import SmpFolders
from tocsin.protocol.addresses import Scheme
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.smp_commands import DeleteQueueProven
from tocsin.smp_router.store.logs.store_files import read_smp_store

SETTINGS: Final[dict[str, Any]] = {
    "direct_notifications": "on",
    "direct_public_ntf_routers_only": "off",
    "direct_retry_initial": 0.05,
    "direct_retry_maximum": 0.1,
}


async def test_packets_minimums_and_associations_survive_kill_9(tmp_path: Path) -> None:
    folders = SmpFolders(tmp_path)
    async with fake_ntf_forwardee(credentials=ntf_credentials()) as gone:
        location = gone.location
    router = await folders.start(**SETTINGS)
    try:
        client = await router.connect(alpn=DIRECT_ALPN)
        waiting, deleted = await client.new_queue(), await client.new_queue()
        wish, proof = Wish(location, MinimumPriority.HIGH), some_packet()
        notifier, fate = await wish.associate(client, waiting)
        assert fate is PacketFate.PENDING
        assert (await Wish(location).associate(client, deleted))[1] is PacketFate.PENDING
        assert await client.ask(DeleteQueueProven(proof), deleted.recipient_id, deleted.key) == OK
    finally:
        await router.kill()
    port = location.port_number(Scheme.NTF)
    async with fake_ntf_forwardee(credentials=ntf_credentials(), port=port) as back:
        router = await folders.start(**SETTINGS)
        try:
            await until(lambda: len(back.packets) == 2)
            assert sorted(back.packets) == sorted([wish.packet, proof])
            client = await router.connect(alpn=DIRECT_ALPN)
            fate = PacketFate.PENDING
            while fate is PacketFate.PENDING:
                fate = await fate_of(client, waiting)
            assert fate is PacketFate.ACCEPTED
            for priority in (2, 3):
                assert await send_with_priority(client, waiting, priority) == OK
        finally:
            await router.kill()
    store, report = read_smp_store(folders.store)
    queue = store.queue_by_notifier(notifier.notifier_id)
    assert queue is not None
    assert queue.notifier is not None
    service = store.service_by_fingerprint(location.key_hash)
    assert service is not None
    assert queue.notifier.service_id == service.service_id
    assert len(store.notifications(notifier.notifier_id)) == 1
    assert report.broken == 0
