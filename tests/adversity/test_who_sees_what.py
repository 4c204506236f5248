"""Whole deliveries between real agents; then everything that each party has is searched for what it must not know.

A party has its files (also those of its PostgreSQL), its log, the pages for its operator, and what it was sent. Every
secret is searched for in each form in which bytes appear in files and texts, also inside what is base64 or hexadecimal
there. A party that must have a secret shows that the search can find it.

The pipeline's tables are searched row by row. Firebase and Web Push services are handed pushes by a router in this
process, and everything that came to them is searched.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as parquet  # type: ignore[import-untyped]  # it has no types
import pytest
from rich.console import Console

from tests.doubles.ntf_harness import NtfHarness, ntf_router
from tests.doubles.ntf_world import Chat, SmpPlace, becomes, chat_at
from tests.doubles.spark_desk import SparkDesk
from tests.doubles.web_push_service import WebPushPhone, WebPushService
from tests.scenarios.ntf_router.test_fcm import device_of
from tests.scenarios.ntf_router.test_web_push import device_with
from tests.unit.push.fcm.stage import REGISTRATION, HeldTime, account_of, fcm_settings
from tests.unit.push.webpush.stage import KEY, web_push_settings
from tocsin.agent.store.records import AgentToken, QueueNotifier, ReceiveQueue, SendQueue
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import private_key_from_der
from tocsin.errors import BadBox, DecodeError
from tocsin.lab import processes, system
from tocsin.lab.phones import Arrival, Phone
from tocsin.lab.system import System, UpOptions, awake, make_folder, started_system
from tocsin.operate.http_client import get_page
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import MessagePush, parse_push_json, unseal_notifications
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.push.fake.fcm import FakeFcm, running_fake_fcm
from tocsin.push.fake.server import RecordedPush
from tocsin.push.fcm.client import FcmProvider
from tocsin.push.provider import Provider
from tocsin.push.webpush.client import WebPushProvider

pytestmark = pytest.mark.timeout(180)

SMP, NTF, PROVIDER, EVENTS, TEXTS = "SMP router", "NTF router", "push provider", "event log", "logs and pages"
TABLES = "tables and reports of the pipeline"
PARTIES: Final = (SMP, NTF, PROVIDER, EVENTS, TEXTS, TABLES)
GOOGLE, WEB_PUSH = "Google", "Web Push service"
KNOWN_TO: Final[dict[str, frozenset[str]]] = {
    "message text": frozenset(),
    "name of a phone": frozenset(),
    "private key": frozenset(),
    "end-to-end key": frozenset(),
    "message id": frozenset({SMP}),
    "recipient id": frozenset({SMP}),
    "sender id": frozenset({SMP}),
    "secret of a queue": frozenset({SMP}),
    "secret of the metadata": frozenset({SMP}),
    "notifier id": frozenset({SMP, NTF}),
    "device token": frozenset({NTF, PROVIDER}),
    "token id": frozenset({NTF}),
    "secret of pushes": frozenset({NTF}),
    "nonce of a notification": frozenset({SMP, NTF}),
}
"""The parties that may have a secret. All others must not have it in any form."""
MUST_FIND: Final = {
    ("recipient id", SMP),
    ("sender id", SMP),
    ("secret of a queue", SMP),
    ("notifier id", SMP),
    ("notifier id", NTF),
    ("device token", NTF),
    ("device token", PROVIDER),
    ("token id", NTF),
    ("secret of pushes", NTF),
}
"""What a party needs and keeps: if it is not found, the search is broken."""
SHORTEST: Final = 8
"""Bytes. A shorter value would be found by chance."""


def forms(secret: bytes) -> set[bytes]:
    """In which it may stand in a file or a text."""
    encoded = {encode(secret).rstrip(b"=") for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    return {
        secret,
        secret.hex().encode(),
        secret.hex().upper().encode(),
        repr(secret)[2:-1].encode(),
        *encoded,
    }


_ENCODED: Final = re.compile(rb"[A-Za-z0-9_/+-]{16,}")


def decoded(content: bytes) -> Iterator[bytes]:
    """What stands in base64 or hexadecimal in it: the forms of a secret are not found in the middle of those."""
    for word in set(_ENCODED.findall(content)):
        plain = word.translate(bytes.maketrans(b"-_", b"+/"))
        yield base64.b64decode(plain + b"A" * (-len(plain) % 4))
        if re.fullmatch(rb"(?:[0-9a-fA-F]{2})+", word):
            yield bytes.fromhex(word.decode())


@dataclass
class Secrets:
    """By kind."""

    kinds: dict[str, set[bytes]]

    def add(self, kind: str, *values: bytes | None) -> None:
        self.kinds.setdefault(kind, set()).update(each for each in values if each and len(each) >= SHORTEST)

    def found(self, content: bytes) -> set[str]:
        return {
            kind
            for kind, values in self.kinds.items()
            if any(form in content for value in values for form in forms(value))
        }


class Witness:
    """Receives the messages that phones fetch."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.pushes: list[tuple[Phone, RecordedPush]] = []

    def arrived(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)

    async def woken(self, phone: Phone, push: RecordedPush) -> None:
        self.pushes.append((phone, push))


@pytest.mark.parametrize("direct", ["on", "off"], ids=["direct notifications", "subscriptions of queues"])
async def test_no_party_has_what_it_must_not_know(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    direct: str,
    desk: SparkDesk,
) -> None:
    caplog.set_level(logging.DEBUG)
    _log_everything(monkeypatch, direct)
    folder, witness = tmp_path / "up", Witness()
    options = UpOptions(folder, once=True, phones=3, messages=0, pipeline=False)
    make_folder(folder)
    async with started_system(options, Console(quiet=True), witness) as running:
        secrets = Secrets({})
        before = [await _of_phone(secrets, phone) for phone in running.people]
        assert all(before)
        async with awake(running):
            await _talk(running, witness, secrets)
        waiting = f"{witness.arrivals[0].phone} waits {'x' * 20}"
        await _left_unfetched(running, waiting, secrets)
        pages = await _pages(running)
        _of_pushes(secrets, witness)
        sent_to_provider = [
            b"\n".join([push.device_token, push.payload, *(b": ".join(each) for each in push.headers)])
            for push in running.apns.requests
        ]
    # The events have one form, so Spark reads those of one kind of subscription.
    tables = await _tables(desk, folder, tmp_path) if direct == "on" else []
    assert set(secrets.kinds) == set(KNOWN_TO)
    assert all(secrets.kinds.values()), {kind for kind, values in secrets.kinds.items() if not values}
    has = {
        SMP: _found(secrets, _files(folder / "smp")),
        NTF: _found(secrets, _files(folder / "ntf")),
        PROVIDER: _found(secrets, _with_decoded(sent_to_provider)),
        EVENTS: _found(secrets, [*_files(folder / "smp-events"), *_files(folder / "ntf-events")]),
        TEXTS: _found(secrets, [*_files(folder / "logs"), *pages, caplog.text.encode()]),
        TABLES: _found(secrets, tables),
    }
    assert sorted(f"{kind}: {who}" for who in PARTIES for kind in has[who] if who not in KNOWN_TO[kind]) == []
    assert {(kind, who) for kind, who in MUST_FIND if kind not in has[who]} == set()
    assert _files(folder / "smp-events")
    assert _files(folder / "ntf-events")
    assert sum(map(len, _files(folder / "logs"))) > 1000


def _log_everything(monkeypatch: pytest.MonkeyPatch, direct: str) -> None:
    """Routers log at the lowest level, with or without direct notifications. Device tokens are as long as real ones."""
    register = Phone.register

    async def with_long_token(self: Phone) -> None:
        self.device_token = os.urandom(32).hex().encode()
        await register(self)

    monkeypatch.setattr(Phone, "register", with_long_token)
    start = processes.ChildProcess.start

    async def verbose(self: processes.ChildProcess, *arguments: object, **more: Any) -> None:
        more_arguments = ("--log-level", "DEBUG") if arguments[1:2] == ("start",) else ()
        await start(self, *arguments, *more_arguments, **more)

    monkeypatch.setattr(processes.ChildProcess, "start", verbose)
    for name in ("_smp_settings", "_ntf_settings"):
        settings = getattr(system, name)
        monkeypatch.setattr(
            system,
            name,
            lambda running, settings=settings: {**settings(running), "direct_notifications": direct},
        )


async def _of_phone(secrets: Secrets, phone: Phone) -> bool:
    """Everything secret in the store of an agent. Returns whether there was something."""
    token = await phone.store.token()
    assert token is not None
    _of_token(secrets, token)
    secrets.add("name of a phone", f"{phone.name}’s".encode())
    connections = [each.connection_id for each in await phone.store.connections()]
    for connection_id in connections:
        for queue in await phone.store.receive_queues(connection_id):
            _of_receive_queue(secrets, queue)
        for sending in await phone.store.send_queues(connection_id):
            _of_send_queue(secrets, sending)
    return bool(connections)


def _of_token(secrets: Secrets, token: AgentToken) -> None:
    secrets.add("device token", token.device_token.token)
    secrets.add("token id", token.token_id)
    secrets.add("secret of pushes", token.secret)
    secrets.add("private key", _seed(token.key), token.dh_key)


def _of_receive_queue(secrets: Secrets, queue: ReceiveQueue) -> None:
    secrets.add("recipient id", queue.recipient_id)
    secrets.add("sender id", queue.sender_id)
    secrets.add("secret of a queue", queue.secret)
    secrets.add("private key", _seed(queue.key))
    secrets.add("end-to-end key", queue.peer_key)
    if queue.notifier is not None:
        _of_notifier(secrets, queue.notifier)


def _of_notifier(secrets: Secrets, notifier: QueueNotifier) -> None:
    secrets.add("notifier id", notifier.notifier_id)
    secrets.add("secret of the metadata", notifier.secret)


def _of_send_queue(secrets: Secrets, queue: SendQueue) -> None:
    secrets.add("sender id", queue.sender_id)
    secrets.add("private key", _seed(queue.key))


def _seed(der: bytes) -> bytes:
    """The bytes that make it secret, without the prefix that all keys share."""
    return private_key_from_der(der).raw


async def _talk(running: System, witness: Witness, secrets: Secrets) -> None:
    texts = set()
    for number in range(3):
        for phone in running.people:
            for chat in phone.chats:
                text = f"{phone.name} says {number} {'y' * 20} {chat}".encode()
                assert await phone.send(chat, text, mention=number == 1) is None
                texts.add(text)
    async with asyncio.timeout(60):
        while not texts <= {each.body for each in witness.arrivals}:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.05)
        while (await running.account()).pending:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.05)
    secrets.add("message text", *texts)
    secrets.add("message id", *(each.message_id for each in witness.arrivals))


async def _left_unfetched(running: System, text: str, secrets: Secrets) -> None:
    """A message that stays at the SMP router, so that its files have one."""
    sender = running.people[0]
    assert await sender.send(next(iter(sender.chats)), text.encode()) is None
    secrets.add("message text", text.encode())


async def _pages(running: System) -> list[bytes]:
    found = []
    for port in (running.ports.metrics, running.ports.smp_metrics):
        for path in ("/metrics", "/health/live", "/health/ready"):
            _, text = await get_page("127.0.0.1", port, path, 10.0)
            found.append(text.encode())
    return found


def _of_pushes(secrets: Secrets, witness: Witness) -> None:
    """The device opens its pushes: notifiers, nonces and message ids are in them."""
    for each in secrets.kinds["secret of pushes"]:
        for _, push in witness.pushes:
            read = parse_push_json(push.payload)
            if isinstance(read, MessagePush) and (opened := _opened(read, each)):
                for notification in opened:
                    secrets.add("nonce of a notification", notification.nonce)


def _opened(push: MessagePush, secret: bytes) -> list[Any]:
    try:
        return list(unseal_notifications(box_key(secret), push))
    except (BadBox, DecodeError):  # the push of another device
        return []


def _files(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]


async def _tables(desk: SparkDesk, folder: Path, tmp_path: Path) -> list[bytes]:
    """Everything that the pipeline makes of the event logs: files, rows and a report, for groups of any size."""
    lake, report = tmp_path / "lake", tmp_path / "report"
    sources = ("--events", folder / "smp-events", "--events", folder / "ntf-events")
    await desk.run("ingest", *sources, "--lake", lake, "--available-now", "--build", "--smallest-group", 1)
    await desk.run("report", "--lake", lake, "--out", report, code=None)
    rows = [str(parquet.read_table(path).to_pylist()).encode() for path in lake.rglob("*.parquet")]
    assert sum(map(len, rows)) > 10_000
    return [*rows, *_files(lake), *_files(report)]


def _with_decoded(contents: Iterable[bytes]) -> list[bytes]:
    return [each for content in contents for each in (content, *decoded(content))]


def _found(secrets: Secrets, contents: Iterable[bytes]) -> set[str]:
    return set().union(*(secrets.found(content) for content in contents))


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, bytes.hex])
def test_a_secret_is_found_in_the_middle_of_what_is_encoded(encode: Callable[[bytes], bytes | str]) -> None:
    secrets = Secrets({"message id": {secret := os.urandom(24)}})
    encoded = encode(b"before " + secret + b" after")
    content = b'{"data": "' + (encoded.encode() if isinstance(encoded, str) else encoded) + b'"}'
    assert secrets.found(content) == set() or encode is bytes.hex
    assert _found(secrets, _with_decoded([content])) == {"message id"}


# Firebase and Web Push


HANDED: Final[dict[str, frozenset[str]]] = {
    **{kind: frozenset() for kind in KNOWN_TO},
    "registration": frozenset({GOOGLE}),
    "path of an endpoint": frozenset({WEB_PUSH}),
    "keys of an endpoint": frozenset(),
    "address of the SMP router": frozenset(),
    "key of the router": frozenset(),
}
"""What each push service may be handed of what a device and the routers know."""


async def test_firebase_and_web_push_services_are_handed_nothing_but_a_sealed_push(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = Secrets({})
    async with AsyncExitStack() as stack:
        smp = await stack.enter_async_context(SmpPlace().running())
        google = await stack.enter_async_context(running_fake_fcm(tmp_path / "google", now=HeldTime()))
        service = await stack.enter_async_context(WebPushService(tmp_path).running())
        ntf = await stack.enter_async_context(_router_with_both(google, service))
        phone = WebPushPhone(service, path="/up/AbCdEfGhIjKlMnOp")
        devices = [await device_of(ntf, google), await device_with(ntf, phone)]
        recipient, sender = await smp.connect(), await smp.connect()
        opened: list[bytes] = []
        for device in devices:
            await device.activate()
            for number in range(2):
                chat = await chat_at(smp, recipient)
                chat.subscription_id = await device.subscribe(chat.address, chat.notifier.key)
                await becomes(device, chat, SubscriptionState.ACTIVE)
                body = b"a message, number %d" % number
                await chat.send(sender, body)
                item = (await device.notifications())[-1]
                opened += [item.queue.notifier_id, item.nonce]
                _of_chat(secrets, chat, body)
                secrets.add("nonce of a notification", item.nonce)
                secrets.add("message id", chat.meta(item).message_id)
            secrets.add("token id", device.token_id)
            secrets.add("secret of pushes", device.secret)
            secrets.add("private key", device.key.raw, device.dh_key.raw)
        secrets.add("registration", REGISTRATION)
        secrets.add("device token", phone.token)
        secrets.add("path of an endpoint", phone.path.encode())
        secrets.add("keys of an endpoint", phone.secret.raw, phone.secret.raw[:32], phone.secret.raw[32:])
        secrets.add("address of the SMP router", smp.location.key_hash, str(smp.location).encode())
        numbers = account_of(google).key.private_numbers()
        secrets.add("key of the router", bytes(range(1, 33)), numbers.d.to_bytes(256, "big"), KEY.pem)
        handed = {
            GOOGLE: [
                b"\n".join([each.payload, *(b": ".join(header) for header in each.headers)])
                for each in google.requests
            ],
            WEB_PUSH: [
                b"\n".join([each.path.encode(), repr(dict(each.headers)).encode(), each.body])
                for each in service.received
            ],
        }
    assert set(HANDED) - set(secrets.kinds) == {
        "name of a phone",
        "end-to-end key",
    }  # these devices have none
    found = {who: _found(secrets, _with_decoded(contents)) for who, contents in handed.items()}
    assert found == {GOOGLE: {"registration"}, WEB_PUSH: {"path of an endpoint"}}
    assert all(len(contents) == 3 for contents in handed.values())  # a code, and a push for each message
    assert secrets.found(b"".join(opened)) == {
        "notifier id",
        "nonce of a notification",
    }  # the device has them
    assert _found(secrets, [caplog.text.encode()]) <= {"address of the SMP router"}


@asynccontextmanager
async def _router_with_both(google: FakeFcm, service: WebPushService) -> AsyncIterator[NtfHarness]:
    firebase_settings = replace(fcm_settings(google), key_file=Path("account.json"))
    web_push_settings_ = web_push_settings(ca_file=service.ca_file)
    firebase = FcmProvider(firebase_settings, account_of(google), HeldTime())
    web_push = WebPushProvider(web_push_settings_, KEY, service.find)
    providers: dict[PushProvider, Provider] = {PushProvider.FCM: firebase, PushProvider.WEBPUSH: web_push}
    try:
        async with ntf_router(providers=providers, webpush=web_push_settings_, fcm=firebase_settings) as ntf:
            yield ntf
    finally:
        await firebase.close()
        await web_push.close()


def _of_chat(secrets: Secrets, chat: Chat, body: bytes) -> None:
    queue = chat.queue
    assert queue.sender_key is not None
    secrets.add("message text", body)
    secrets.add("recipient id", queue.recipient_id)
    secrets.add("sender id", queue.sender_id)
    secrets.add("secret of a queue", queue.secret)
    secrets.add("notifier id", chat.notifier.notifier_id)
    secrets.add("secret of the metadata", chat.notifier.secret)
    secrets.add("private key", queue.key.raw, queue.sender_key.raw, chat.notifier.key.raw)
