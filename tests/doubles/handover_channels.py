"""All channels between a router and the `deliver` job, each with what it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.doubles.kafka_brokers import kafka_brokers
from tests.doubles.object_storage import BUCKET, object_storage
from tests.doubles.pulled_rows import pulled_rows
from tocsin.crypto.boxes import BoxKey
from tocsin.ntf_router.delivery.channels.channel import RouterChannel
from tocsin.ntf_router.delivery.channels.folder_channel import FolderChannel
from tocsin.ntf_router.delivery.channels.handover_key import handover_key
from tocsin.ntf_router.delivery.channels.kafka_channel import KafkaChannel, KafkaTopics
from tocsin.ntf_router.delivery.channels.places import RouterPlace
from tocsin.ntf_router.delivery.channels.storage_channel import ObjectStore, StorageChannel

CHANNELS = ("folder", "tls", "storage", "kafka")


class MetChannel(NamedTuple):
    channel: RouterChannel
    place: RouterPlace
    key: BoxKey


@asynccontextmanager
async def met(kind: str, folder: Path) -> AsyncIterator[MetChannel]:
    """The router's end, which works already, and where the job finds its own."""
    keys = folder / "handover-keys"
    key = handover_key(keys)
    if kind == "folder":
        yield MetChannel(
            FolderChannel(folder / "handover"), RouterPlace(str(folder / "handover"), str(keys)), key
        )
    elif kind == "tls":
        async with pulled_rows(keys) as (served, end):
            yield MetChannel(served, RouterPlace(end.place, str(keys)), key)
    elif kind == "kafka":
        with kafka_brokers() as brokers:
            kafka = KafkaChannel(KafkaTopics(brokers, "ntf-1"))
            async with kafka.running():
                yield MetChannel(kafka, RouterPlace(f"kafka://{brokers}/ntf-1", str(keys)), key)
    else:
        with object_storage() as options:
            address = f"s3://{BUCKET}/ntf-1"
            channel = StorageChannel(ObjectStore(address, options))
            async with channel.running():
                yield MetChannel(channel, RouterPlace(address, str(keys), options), key)
