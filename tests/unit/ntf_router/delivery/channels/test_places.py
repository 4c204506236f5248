"""Which channel a place of settings or options stands for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.doubles.routers import make_credentials
from tocsin.crypto.boxes import BoxKey
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.folder_channel import FolderChannel, RouterFolder
from tocsin.ntf_router.delivery.channels.kafka_channel import KafkaTopics, RouterTopics
from tocsin.ntf_router.delivery.channels.places import RouterPlace, router_channel
from tocsin.ntf_router.delivery.channels.pull_client import PulledRouter
from tocsin.ntf_router.delivery.channels.pull_messages import HelloPull
from tocsin.ntf_router.delivery.channels.pull_server import PullChannel, PullPort
from tocsin.ntf_router.delivery.channels.storage_channel import RouterStorage

KEY = BoxKey(bytes(32))
FINGERPRINT = "A" * 43 + "="


def test_the_job_finds_its_end_on_every_machine() -> None:
    places = [
        (RouterPlace("/srv/handover", "/keys"), RouterFolder(Path("/srv/handover"))),
        (RouterPlace(f"tls://{FINGERPRINT}@h:5226"), PulledRouter("h", 5226, bytes(32), None)),
        (RouterPlace("s3://b/ntf-1", None, {"A": "1"}), RouterStorage("s3://b/ntf-1", (("A", "1"),))),
        (RouterPlace("kafka://h:9092/n"), RouterTopics(KafkaTopics("h:9092", "n"))),
    ]
    for place, channel in places:
        sent = msgspec.json.decode(msgspec.json.encode(place), type=RouterPlace)
        assert sent.channel() == channel
        assert channel.place == place.place
    assert len({place.name for place, _ in places}) == 4
    assert [place.shares_folder for place, _ in places] == [True, False, False, False]


def test_no_secret_is_shown() -> None:
    shown = [
        RouterPlace("s3://b/n", None, {"KEY": "hidden"}),
        RouterStorage("s3://b/n", (("KEY", "hidden"),)),
        PullPort("h", 1, make_credentials(), b"hidden"),
        HelloPull(b"hidden"),
    ]
    assert "hidden" not in repr(shown)


def test_the_router_opens_its_own(tmp_path: Path) -> None:
    credentials = make_credentials()
    assert isinstance(router_channel(tmp_path / "handover", credentials, KEY), FolderChannel)
    assert isinstance(router_channel("tls://127.0.0.1:5226", credentials, KEY), PullChannel)
    with pytest.raises(ConfigError, match="an address begins with"):
        router_channel("ftp://h/x", credentials, KEY)


def test_an_address_without_a_fingerprint_is_refused_to_the_job() -> None:
    with pytest.raises(ConfigError, match="write tls://FINGERPRINT@h:5226"):
        RouterPlace("tls://h:5226").channel()
