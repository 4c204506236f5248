"""The SMP router of `bench.direct`, as a separate process: many queues with notifiers, associated or not.

Arguments: folder with the router's credentials and the NTF router's (in `ntf/`), number of queues, seed, whether they
are associated with the NTF router. Prints one JSON line when it is ready, then serves until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

from tocsin.crypto.keys import Ed25519PrivateKey
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.running_router import running_smp_router
from tocsin.smp_router.settings.settings import SmpDirectSettings, SmpSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.smp_router.store.records import NotifierRecord, QueueRecord, ServiceRecord
from tocsin.transport.credential_files import read_credentials

NOTIFIER_KEY = Ed25519PrivateKey(b"\x01" * 32)
"""Of all queues: verifying a signature costs the same, and making a million keys would take long."""
SERVICE_ID = b"\x02" * 24


def notifier_ids(count: int, seed: int) -> list[bytes]:
    """The same for the same seed, in both processes."""
    source = random.Random(seed)
    return [source.randbytes(24) for _ in range(count)]


async def main() -> None:
    folder, queues, seed, associated = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    ntf = read_credentials(folder / "ntf")
    store = SmpMemoryStore()
    store.add_service(ServiceRecord(SERVICE_ID, ServiceRole.NOTIFIER, ntf.chain, ntf.fingerprint, 1))
    source = random.Random(seed + 1)
    service_id = SERVICE_ID if associated == "yes" else None
    key = NOTIFIER_KEY.public.der
    for notifier_id in notifier_ids(queues, seed):
        notifier = NotifierRecord(notifier_id, key, source.randbytes(32), service_id)
        store.add_queue(
            QueueRecord(
                source.randbytes(24), (key,), source.randbytes(32), source.randbytes(24), notifier=notifier
            )
        )
    settings = SmpSettings(
        hosts=("127.0.0.1",),
        ports=(0,),
        store=None,
        accept_service_credentials=True,
        direct=SmpDirectSettings(enabled=True, public_ntf_routers_only=False),
    )
    async with running_smp_router(settings, read_credentials(folder / "smp"), store) as running:
        print(json.dumps({"port": running.ports[0]}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
