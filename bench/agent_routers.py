"""The routers that a measured agent uses, in a process of their own: `python -m bench.agent_routers FOLDER`.

Prints one JSON object a line: first the ports, then the payload of every push. Ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from tocsin.ntf_router.running_router import running_ntf_router
from tocsin.ntf_router.settings.settings import NtfSettings, SubscriberSettings
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import NullProvider, PushOutcome, PushRequest
from tocsin.push.settings import ApnsEndpoint, ApnsSettings
from tocsin.smp_router.running_router import running_smp_router
from tocsin.smp_router.settings.settings import SmpSettings
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore
from tocsin.transport.credential_files import read_credentials


class PrintingProvider(NullProvider):
    """Accepts every push and prints it."""

    def submit(self, push: PushRequest, answered: Callable[[PushOutcome], None]) -> None:
        print(json.dumps({"push": push.payload.decode()}), flush=True)
        super().submit(push, answered)


async def main() -> None:
    credentials = read_credentials(Path(sys.argv[1]))
    smp_settings = SmpSettings(hosts=("127.0.0.1",), ports=(0,))
    ntf_settings = NtfSettings(
        hosts=("127.0.0.1",),
        ports=(0,),
        apns=ApnsSettings(endpoints={"apns_test": ApnsEndpoint("localhost")}),
        subscriber=SubscriberSettings(allow_private_hosts=True),
    )
    providers = {PushProvider.APNS_TEST: PrintingProvider()}
    async with (
        running_smp_router(smp_settings, credentials, SmpMemoryStore()) as smp,
        running_ntf_router(ntf_settings, credentials, NtfMemoryStore(), providers) as ntf,
    ):
        print(json.dumps({"smp": smp.ports[0], "ntf": ntf.ports[0]}), flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        await reader.read()


if __name__ == "__main__":
    asyncio.run(main())
