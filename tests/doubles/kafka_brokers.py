"""Kafka's protocol on loopback: the mock cluster of librdkafka. It creates a topic when it is asked for one.

There is no broker in the package index that could be installed for tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer


@contextmanager
def kafka_brokers() -> Iterator[str]:
    """Yields the brokers' addresses."""
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 2})
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{each.host}:{each.port}" for each in brokers)
    owner.flush(0)
