"""Routers as an external suite starts them: by `python -m tools.external_router` and variables, until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.doubles.routers import HOST
from tests.doubles.smp_harness import PATIENCE, SmpTestClient, service_credentials
from tocsin.crypto.credentials import Credentials
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.sessions import ServiceRole
from tocsin.transport.client_sessions import DialSettings, ServiceIdentity, dial_smp
from tocsin.wire.versions import VersionRange

SERVING: Final = re.compile(rb"[sS]erving .* ports? (\d+)")
UNENCRYPTED: Final = DialSettings(
    connect_timeout=PATIENCE, versions=VersionRange(6, 18), encrypt_blocks=False
)
"""The raw client of smp-tests.md 2: no key in its hello."""


@dataclass
class ExternalRouter:
    """A process, and how to reach it."""

    process: Process
    port: int
    credentials: Credentials
    said: list[bytes]
    """Lines of its log until it served."""
    clients: list[SmpTestClient] = field(default_factory=list)

    @property
    def location(self) -> RouterLocation:
        return RouterLocation((HOST,), str(self.port), self.credentials.fingerprint)

    async def connect(
        self,
        settings: DialSettings = UNENCRYPTED,
        service: ServiceRole | None = None,
        certificates: Credentials | None = None,
    ) -> SmpTestClient:
        """A client of an SMP router, as a service if its role is named: the same one, unless there are certificates."""
        shown = certificates or service_credentials()
        identity = None if service is None else ServiceIdentity(shown, service, from_version=16)
        connection = await dial_smp(RouterAddress(Scheme.SMP, self.location), settings, identity)
        self.clients.append(SmpTestClient(connection))
        return self.clients[-1]


@asynccontextmanager
async def external_router(
    kind: str, folder: Path, credentials: Credentials, **variables: object
) -> AsyncIterator[ExternalRouter]:
    """The process, which is stopped in the end, and must have liked it. `folder` has the credentials' files."""
    named = {f"EXT_{name}": str(value) for name, value in variables.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tools.external_router", kind),
        env=os.environ | {"EXT_CREDENTIALS": str(folder)} | named,
        stdout=PIPE,
    )
    assert process.stdout is not None
    said: list[bytes] = []
    try:
        async for line in process.stdout:
            said.append(line)
            if found := SERVING.search(line):
                break
        else:
            raise AssertionError("it never served")
        router = ExternalRouter(process, int(found[1]), credentials, said)
        yield router
        for client in router.clients:
            await client.close()
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0
