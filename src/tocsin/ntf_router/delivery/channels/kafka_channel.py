"""Two topics of Kafka between router and job: `NAME-rows`, a message for each row, and `NAME-outcomes`.

A row's key is that of its token, so rows of a token keep their order, whatever the number of partitions. A position is
an offset in each partition. Kafka keeps what it has for as long as its topics say, so nothing is withdrawn or deleted:
each message has the router's *life* in a header, and the job leaves out rows of a life that is not the newest. The
first row of a life goes to every partition, and is read once.

`TOCSIN_KAFKA_SETTINGS` names a file with further settings of the client (security, for example), on each machine.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.channel import MOST_BYTES, Segment, cut
from tocsin.ntf_router.delivery.channels.router_end import (
    PAUSE_SECONDS,
    ChannelThread,
    WaitingOutcomes,
    require_room,
)

SETTINGS_VARIABLE: Final = "TOCSIN_KAFKA_SETTINGS"
ANSWER_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.02
STALL_SECONDS: Final = 5.0
"""So long the job waits for rows that Kafka says it has. Without them, the router pushes by itself."""
PUBLISH_SECONDS: Final = 5.0
STEP: Final = 2_000
"""Rows of a segment."""
MOST_STEPS: Final = 16
ROW_BYTES: Final = 1_000
"""A usual row. Kafka does not say how long they are."""
MESSAGE_BYTES: Final = 500_000
"""Outcome rows of one message: a broker takes a million bytes unless it is told otherwise."""
_LIFE: Final = "life"
_FIRST: Final = "first"
_TOKEN: Final = 4
"""The number of the field of a row that names its token."""

logger = logging.getLogger(__name__)


class KafkaTopics(NamedTuple):
    """The topics of one router, and how to reach them."""

    brokers: str
    name: str

    @property
    def rows(self) -> str:
        return f"{self.name}-rows"

    @property
    def outcomes(self) -> str:
        return f"{self.name}-outcomes"

    def client(self, **own: object) -> dict[str, Any]:
        """Settings of a client. Raises ConfigError for a file of settings that cannot be read."""
        usual = {"bootstrap.servers": self.brokers, "log_level": 2, "reconnect.backoff.max.ms": 5_000}
        return {**usual, **_file_settings(os.environ.get(SETTINGS_VARIABLE)), **own}

    def producer(self) -> Any:
        return _kafka().Producer(
            self.client(
                **{"linger.ms": 5, "queue.buffering.max.kbytes": MOST_BYTES >> 10, "acks": "all"},
            )
        )

    def consumer(self) -> Any:
        """Reads what it is assigned, and remembers no offset."""
        own = {
            "group.id": f"tocsin-{secrets.token_hex(6)}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
        }
        return _kafka().Consumer(self.client(**own))


class KafkaChannel:
    """The router's end. A thread of its own talks to Kafka."""

    def __init__(self, topics: KafkaTopics) -> None:
        """Raises ConfigError without the package for it."""
        self._topics = topics
        self._producer = topics.producer()
        self._consumer = topics.consumer()
        self._lock = threading.Lock()
        self._life = ""
        self._queue: deque[tuple[str, bytes, bool]] = deque()
        """Life, row, and whether it goes to every partition."""
        self._queued = 0
        self._outcomes = WaitingOutcomes()
        self._partitions = 0
        self._thread = ChannelThread("with Kafka", _kafka().KafkaException, self._work, self._end)

    def begin(self, line: bytes) -> None:
        with self._lock:
            # Lives are compared as text: a later one is greater.
            self._life = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
            self._queue.clear()
            self._queue.append((self._life, line, True))
            self._queued = len(line)

    def publish(self, lines: Sequence[bytes]) -> None:
        with self._lock:
            self._queued += require_room(self._queued, lines, "Kafka")
            self._queue.extend([(self._life, line, False) for line in lines])

    def take(self) -> Iterator[bytes]:
        return self._outcomes.take()

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._thread.running()

    def _work(self) -> None:
        if not self._partitions:
            # Asked by a producer, a broker may create topics.
            partitions = len(partitions_of(self._producer, self._topics.rows))
            outcomes = partitions_of(self._producer, self._topics.outcomes)
            self._consumer.assign([self._at_the_end(each) for each in outcomes])
            self._partitions = partitions
        self._send()
        self._receive()

    def _end(self) -> None:
        self._producer.flush(PAUSE_SECONDS)
        self._consumer.close()

    def _at_the_end(self, partition: int) -> Any:
        """Where outcomes begin that answer to what is sent from now on."""
        place = _kafka().TopicPartition(self._topics.outcomes, partition)
        _, place.offset = self._consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS, cached=False)
        return place

    def _send(self) -> None:
        """Give rows to the client, as far as it has room."""
        while True:
            with self._lock:
                if not self._queue:
                    break
                life, line, everywhere = self._queue.popleft()
                self._queued -= len(line)
            headers = {_LIFE: life}
            try:
                if everywhere:
                    for number in range(self._partitions):
                        self._producer.produce(
                            self._topics.rows, line, partition=number, headers={**headers, _FIRST: ""}
                        )
                else:
                    self._producer.produce(self._topics.rows, line, key=_key(line), headers=headers)
            except BufferError:
                with self._lock:
                    if life == self._life:
                        self._queue.appendleft((life, line, everywhere))
                        self._queued += len(line)
                break
        self._producer.poll(0)

    def _receive(self) -> None:
        if not self._outcomes.has_room():
            self._thread.wait(LOOK_SECONDS)
            return
        for message in self._consumer.consume(64, timeout=LOOK_SECONDS):
            if message.error() is None:
                self._outcomes.add(message.value())


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """Rows of one life, up to an offset in each partition."""

    life: str
    offsets: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> TopicPosition:
        life, _, offsets = text.partition(":")
        return cls(life, tuple(map(int, offsets.split(","))) if offsets else ())

    def __str__(self) -> str:
        return f"{self.life}:{','.join(map(str, self.offsets))}"

    def offset(self, partition: int) -> int:
        """Where to go on. A partition that was added later begins at 0."""
        return self.offsets[partition] if partition < len(self.offsets) else 0


@dataclass(frozen=True, slots=True)
class RouterTopics:
    """The job's end. Each process has its own client."""

    topics: KafkaTopics

    @property
    def place(self) -> str:
        return f"kafka://{self.topics.brokers}/{self.topics.name}"

    def new(self, after: str) -> Sequence[Segment]:
        try:
            end = _reader_of(self.topics).end()
        except _kafka().KafkaException as error:
            logger.warning("cannot look for rows at %s: %s", self.place, error)
            return ()
        return _steps(TopicPosition.parse(after), end) if end is not None else ()

    def between(self, after: str, end: str) -> Sequence[Segment]:
        return _steps(TopicPosition.parse(after), TopicPosition.parse(end), most=None)

    def read(self, after: str, end: str) -> Iterator[tuple[int, bytes]]:
        start, last = TopicPosition.parse(after), TopicPosition.parse(end)
        try:
            yield 0, b"".join(_reader_of(self.topics).rows(start, last))
        except _kafka().KafkaException as error:
            logger.warning("cannot read rows at %s: %s", self.place, error)

    def done(self, end: str) -> None:
        """Kafka deletes rows by their age."""

    def publish(self, key: str, lines: bytes) -> None:
        producer = _producer_of(self.topics)
        for part in cut(lines.splitlines(keepends=True), MESSAGE_BYTES):
            try:
                # One key, so that the outcomes keep their order.
                producer.produce(self.topics.outcomes, part, key=self.topics.name)
            except BufferError:
                logger.warning("%s cannot be reached: its router pushes some notifications again", self.place)
        producer.flush(PUBLISH_SECONDS)


def _steps(start: TopicPosition, end: TopicPosition, most: int | None = MOST_STEPS) -> list[Segment]:
    """Segments of about `STEP` rows, the last of which ends at `end` unless there are too many."""
    found: list[Segment] = []
    share = max(1, STEP // max(1, len(end.offsets)))
    at = tuple(start.offset(number) for number in range(len(end.offsets)))
    while at != end.offsets and (most is None or len(found) < most):
        after = tuple(min(last, each + share) for each, last in zip(at, end.offsets, strict=True))
        if after == at:  # the topic was deleted, and begins anew
            after = end.offsets
        count = sum(new - old for new, old in zip(after, at, strict=True))
        found.append(Segment(str(TopicPosition(end.life, after)), max(0, count) * ROW_BYTES))
        at = after
    return found


class TopicReader:
    """Reads a topic of rows in one process."""

    def __init__(self, topics: KafkaTopics) -> None:
        self._topic = topics.rows
        self._consumer = topics.consumer()
        self._lock = threading.Lock()
        self._partitions: list[int] = []
        self._end: TopicPosition | None = None

    def end(self) -> TopicPosition | None:
        """The present end, with the newest life. None while there are no rows."""
        with self._lock:
            if not self._partitions:
                self._partitions = partitions_of(self._consumer, self._topic)
            offsets = tuple(self._watermarks(number)[1] for number in self._partitions)
            if self._end is None or self._end.offsets != offsets:
                life = self._newest_life(offsets)
                self._end = None if life is None else TopicPosition(life, offsets)
            return self._end

    def rows(self, start: TopicPosition, end: TopicPosition) -> list[bytes]:
        """The rows of the life, in the order of each partition. What Kafka has deleted is missing."""
        with self._lock:
            wanted: dict[int, int] = {}
            for number, last in enumerate(end.offsets):
                low, high = self._watermarks(number)
                begins = max(start.offset(number), low)
                if begins < min(last, high):
                    wanted[number] = min(last, high)
                    self._assign(number, begins, fresh=len(wanted) == 1)
            found: list[bytes] = []
            first: list[bytes] = []
            for message in self._messages(wanted):
                headers = dict(message.headers() or ())
                if _life(headers) == end.life and message.offset() < end.offset(message.partition()):
                    (first if _FIRST in headers else found).append(message.value())
            self._consumer.unassign()
            return first[:1] + found

    def _newest_life(self, offsets: tuple[int, ...]) -> str | None:
        """None until the first row of the newest life is in every partition."""
        wanted: dict[int, int] = {}
        for number, last in zip(self._partitions, offsets, strict=True):
            if not last:
                return None
            if self._watermarks(number)[0] < last:
                wanted[number] = last
                self._assign(number, last - 1, fresh=len(wanted) == 1)
        lives = {_life(dict(message.headers() or ())) for message in self._messages(wanted)}
        self._consumer.unassign()
        return lives.pop() if len(lives) == 1 else None

    def _messages(self, wanted: Mapping[int, int]) -> Iterator[Any]:
        """Messages of the assigned partitions, until each has reached its end."""
        missing = dict(wanted)
        until = time.monotonic() + STALL_SECONDS
        while missing and time.monotonic() < until:
            for message in self._consumer.consume(STEP, timeout=LOOK_SECONDS):
                if (problem := message.error()) is not None:
                    raise _kafka().KafkaException(problem)
                until = time.monotonic() + STALL_SECONDS
                number = message.partition()
                if number in missing and message.offset() >= missing[number] - 1:
                    del missing[number]
                yield message
        if missing:
            logger.warning("rows of %s are missing in %d partitions", self._topic, len(missing))

    def _assign(self, number: int, offset: int, *, fresh: bool) -> None:
        place = [_kafka().TopicPartition(self._topic, number, offset)]
        if fresh:
            self._consumer.assign(place)
        else:
            self._consumer.incremental_assign(place)

    def _watermarks(self, number: int) -> tuple[int, int]:
        place = _kafka().TopicPartition(self._topic, number)
        low, high = self._consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS, cached=False)
        return low, high


def partitions_of(client: Any, topic: str) -> list[int]:
    """Raises KafkaException if no broker answers, or the topic does not exist."""
    found = client.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    if found.error is not None:
        raise _kafka().KafkaException(found.error)
    return sorted(found.partitions)


def _life(headers: Mapping[str, bytes]) -> str:
    return headers.get(_LIFE, b"").decode(errors="replace")


def _key(line: bytes) -> bytes:
    """The keyed hash of the token in a row, which is a list in JSON."""
    fields = line.split(b",", _TOKEN + 1)
    return fields[_TOKEN] if len(fields) > _TOKEN else line


def _kafka() -> Any:
    """Raises ConfigError without the package."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise ConfigError(
            "an address that begins with kafka:// needs another package: install tocsin[kafka]"
        ) from error
    return confluent_kafka


@lru_cache(maxsize=64)
def _reader_of(topics: KafkaTopics) -> TopicReader:
    return TopicReader(topics)


@lru_cache(maxsize=64)
def _producer_of(topics: KafkaTopics) -> Any:
    return topics.producer()


def _file_settings(name: str | None) -> dict[str, str]:
    """Lines such as `security.protocol=SSL`. Raises ConfigError."""
    if not name:
        return {}
    try:
        lines = Path(name).read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {SETTINGS_VARIABLE} {name}: {error.strerror}") from error
    found = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{name}, line {number}: write a setting as name=value")
        found[key.strip()] = value.strip()
    return found
