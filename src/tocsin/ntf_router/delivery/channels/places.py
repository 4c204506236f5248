"""Where a router and the job meet, as settings and options name it: a folder, or the address of another channel."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tocsin.crypto.boxes import BoxKey
from tocsin.crypto.credentials import Credentials
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.addresses import (
    STORAGE,
    kafka_place,
    scheme_of,
    storage_place,
    tls_place,
    unknown_address,
)
from tocsin.ntf_router.delivery.channels.channel import JobChannel, RouterChannel
from tocsin.ntf_router.delivery.channels.folder_channel import FolderChannel, RouterFolder
from tocsin.ntf_router.delivery.channels.kafka_channel import KafkaChannel, KafkaTopics, RouterTopics
from tocsin.ntf_router.delivery.channels.pull_client import PulledRouter
from tocsin.ntf_router.delivery.channels.pull_messages import pull_proof
from tocsin.ntf_router.delivery.channels.pull_server import PullChannel, PullPort
from tocsin.ntf_router.delivery.channels.storage_channel import ObjectStore, RouterStorage, StorageChannel


class RouterPlace(msgspec.Struct, frozen=True):
    """Where the job meets one router. It travels to executors as text, so name no secrets in it."""

    place: str
    """The absolute path of a folder, or an address."""
    keys: str | None = None
    """The folder of the key on each machine. None: it is in the environment."""
    options: Mapping[str, str] = {}
    """Settings of object storage."""

    def __repr__(self) -> str:
        """Omit the settings, in case that one is secret all the same."""
        return f"RouterPlace({self.place!r})"

    @property
    def name(self) -> str:
        """The router's name in rows. It does not depend on the order of routers."""
        return hashlib.blake2b(self.place.encode(), digest_size=6).hexdigest()

    @property
    def keys_folder(self) -> Path | None:
        return None if self.keys is None else Path(self.keys)

    @property
    def shares_folder(self) -> bool:
        return scheme_of(self.place) is None

    def channel(self) -> JobChannel:
        """Raises ConfigError for an address that cannot be used."""
        match scheme_of(self.place):
            case None:
                return RouterFolder(Path(self.place))
            case "tls":
                host, port, fingerprint = tls_place(self.place)
                if fingerprint is None:
                    raise ConfigError(
                        f"{self.place} does not name the router's fingerprint: write tls://FINGERPRINT@{host}:{port}, "
                        "as in the router's address"
                    )
                return PulledRouter(host, port, fingerprint, self.keys_folder)
            case "kafka":
                return RouterTopics(KafkaTopics(*kafka_place(self.place)))
            case scheme if scheme in STORAGE:
                return RouterStorage(storage_place(self.place), tuple(sorted(self.options.items())))
        raise unknown_address(self.place)


def router_channel(place: Path | str, credentials: Credentials, key: BoxKey) -> RouterChannel:
    """Return the router's end. Raises OSError for a folder, ConfigError for an address that cannot be used."""
    if isinstance(place, Path):
        return FolderChannel(place)
    match scheme_of(place):
        case "tls":
            host, port, _ = tls_place(place)
            return PullChannel(PullPort(host, port, credentials, pull_proof(key)))
        case "kafka":
            return KafkaChannel(KafkaTopics(*kafka_place(place)))
        case scheme if scheme in STORAGE:
            return StorageChannel(ObjectStore(storage_place(place), {}))
    raise unknown_address(place)
