"""A router's port from which a job pulls, and the job's end of it in this process, on loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.doubles.routers import make_credentials
from tocsin.crypto.credentials import Credentials
from tocsin.ntf_router.delivery.channels.handover_key import handover_key
from tocsin.ntf_router.delivery.channels.pull_client import PulledRouter
from tocsin.ntf_router.delivery.channels.pull_messages import pull_proof
from tocsin.ntf_router.delivery.channels.pull_server import PullChannel, PullPort

LOOPBACK = "127.0.0.1"


def pull_channel(credentials: Credentials, keys: Path, port: int = 0) -> PullChannel:
    return PullChannel(PullPort(LOOPBACK, port, credentials, pull_proof(handover_key(keys))))


@asynccontextmanager
async def pulled_rows(keys: Path) -> AsyncIterator[tuple[PullChannel, PulledRouter]]:
    """The router's end, which serves already, and the job's."""
    credentials = make_credentials()
    channel = pull_channel(credentials, keys)
    async with channel.running():
        yield channel, PulledRouter(LOOPBACK, channel.port, credentials.fingerprint, keys)


def another_key(folder: Path) -> Path:
    folder.mkdir()
    (folder / "handover.key").write_bytes(os.urandom(32))
    return folder
