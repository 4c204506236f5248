"""Kafka as a channel: positions, and the settings of its client. What all channels do is in test_channel.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels import kafka_channel
from tocsin.ntf_router.delivery.channels.kafka_channel import (
    MOST_STEPS,
    ROW_BYTES,
    SETTINGS_VARIABLE,
    STEP,
    KafkaTopics,
    RouterTopics,
    TopicPosition,
)

TOPICS = KafkaTopics("broker:9092", "ntf-1")


def test_a_position_is_an_offset_in_each_partition_of_one_life() -> None:
    position = TopicPosition("0017-ab", (3, 0, 12))
    assert TopicPosition.parse(str(position)) == position
    assert TopicPosition.parse("") == TopicPosition("", ())
    assert [position.offset(each) for each in (0, 2, 5)] == [3, 12, 0]


def test_a_backlog_is_cut_into_bounded_segments_that_end_where_it_ends() -> None:
    end = TopicPosition("life", (10 * STEP, 3))
    steps = RouterTopics(TOPICS).between("", str(end))
    assert TopicPosition.parse(steps[-1].name) == end
    assert max(each.size for each in steps) <= STEP * ROW_BYTES
    assert sum(each.size for each in steps) == (10 * STEP + 3) * ROW_BYTES
    assert len(kafka_channel._steps(TopicPosition.parse(""), end)) == MOST_STEPS
    assert RouterTopics(TOPICS).between(str(end), str(end)) == []
    anew = TopicPosition("other", (2, 0))  # somebody deleted the topics
    assert [each.name for each in RouterTopics(TOPICS).between(str(end), str(anew))] == [str(anew)]


def test_a_file_has_further_settings_of_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kafka.properties"
    monkeypatch.setenv(SETTINGS_VARIABLE, str(file))
    with pytest.raises(ConfigError, match=SETTINGS_VARIABLE):
        TOPICS.client()
    file.write_text("# security\n\nsecurity.protocol = SSL\nssl.ca.location=/ca.pem\n")
    settings = TOPICS.client(acks="all")
    assert settings["security.protocol"] == "SSL"
    assert (settings["bootstrap.servers"], settings["acks"]) == ("broker:9092", "all")
    file.write_text("security.protocol\n")
    with pytest.raises(ConfigError, match="line 1: write a setting as name=value"):
        TOPICS.client()


def test_without_the_package_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=r"install tocsin\[kafka\]"):
        TOPICS.producer()
