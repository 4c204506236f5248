"""`python -m tests.unit.ntf_router.store.logs.random_changes folder seed`: changes a store until it is killed.

A line on standard output follows each change that was returned: `nonce` in hex and what became of it.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from tests.unit.ntf_router.store.samples import ROUTER, filled, filler, queue
from tocsin.durable import group_commit
from tocsin.ntf_router.store.logs.store_files import NtfFolderStore, NtfOpenOptions, open_ntf_store
from tocsin.ntf_router.store.records import ReceivedNotification, Recorded, SettledNotification

WORKERS = 4
QUEUES = 8


def tell(*words: str) -> None:
    print(*words, flush=True)


async def work(store: NtfFolderStore, seed: int, worker: int) -> None:
    chance = random.Random(f"{seed} {worker}")
    for step in range(100_000):
        name = (seed, worker, step // 50)
        if step % 50 == 0:
            owner = await filled(store, name, *((name, number) for number in range(QUEUES)))
            tell("token", owner.token_id.hex())
        nonce = filler((name, step), 24)
        number = chance.randrange(QUEUES)
        at = queue((name, number))
        came = ReceivedNotification(at.notifier_id, nonce, filler(nonce, 144), 1000.0 + step)
        [result] = await store.add_notifications(ROUTER, [came])
        assert isinstance(result, Recorded)
        tell("came", nonce.hex(), "-" if result.superseded is None else result.superseded.hex())
        if chance.random() < 0.5:
            subscription_id = filler(("subscription", (name, number)), 24)
            await store.settle([SettledNotification(owner.token_id, subscription_id, nonce, "accepted", at)])
            tell("settled", nonce.hex())
        if step % 50 == 49 and chance.random() < 0.5:
            await store.delete_token(owner.token_id)
            tell("gone", owner.token_id.hex())


async def save_often(store: NtfFolderStore) -> None:
    while True:
        await store.maintain()
        await asyncio.sleep(0.01)


async def main(folder: Path, seed: int) -> None:
    group_commit.LEAST_BYTES = group_commit.GROWTH = 0  # type: ignore[attr-defined]
    store = open_ntf_store(folder, NtfOpenOptions(change_log_limit=20_000))
    await asyncio.gather(save_often(store), *(work(store, seed, worker) for worker in range(WORKERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
