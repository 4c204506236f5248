"""Each push provider before its fake, under one interface. A new provider gets a row in `PLACES`."""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.doubles.web_push_service import HANG_UP, STALL, Answer, Raw, WebPushPhone, WebPushService
from tests.doubles.web_push_service import Behaviour as WebPushBehaviour
from tests.unit.push.fcm.stage import REGISTRATION, HeldTime, account_of, fcm_settings
from tests.unit.push.webpush.stage import KEY, web_push_settings
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.pushes import MessagePush
from tocsin.protocol.ntf.web_push_tokens import WebPushForm
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.apns.request import ProviderToken
from tocsin.push.fake.behaviours import Behaviour, CloseConnection, GoAway, Hold, Respond, SendRaw
from tocsin.push.fake.fcm import FakeFcm, running_fake_fcm
from tocsin.push.fake.request_checks import Rules
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.push.fcm.client import FcmProvider
from tocsin.push.provider import Provider, PushOutcome, PushRequest, Urgency
from tocsin.push.settings import ApnsEndpoint, ApnsSettings
from tocsin.push.webpush.client import WebPushProvider
from tocsin.push.webpush.host_lane import AUTHORIZATION_SECONDS

PUSH: Final = MessagePush(b"n" * 24, b"s" * 2000)
"""Fits every provider: how long contents may be is the business of the delivery."""
TIMEOUT: Final = 5.0


class Trouble(Enum):
    """What may happen to a push."""

    INVALID_TOKEN = "the token is invalid"
    RATE_LIMITED = "too many pushes: come back in 7 s"
    OVERLOADED = "no service: come back in 3 s"
    REDIRECT = "go to another place"
    HUGE_ANSWER = "an error of a megabyte"
    GARBAGE = "an answer that is none"
    LOST = "the connection is lost"
    STALL = "no answer"
    GOAWAY = "the service wants another connection"


class Place(ABC):
    """A provider before its fake."""

    kind: ClassVar[PushProvider]

    def __init__(self, provider: Provider, clock: HeldTime) -> None:
        self.provider = provider
        self.clock = clock

    async def push(self, device: int = 1) -> PushOutcome:
        outcome: asyncio.Future[PushOutcome] = asyncio.get_running_loop().create_future()
        self.provider.submit(self.request(device), outcome.set_result)  # a second answer would raise
        assert not outcome.done()  # never before `submit` returns
        async with asyncio.timeout(10 * TIMEOUT):
            return await outcome

    def request(self, device: int) -> PushRequest:
        return PushRequest(
            self.token(device),
            PUSH,
            Urgency.ALERT,
            str(uuid.uuid4()),
            int(self.clock.time) + 3600,
        )

    def device_token(self, device: int) -> DeviceToken:
        return DeviceToken(self.kind, self.token(device))

    @abstractmethod
    def token(self, device: int) -> bytes: ...

    @abstractmethod
    def secrets(self, device: int) -> list[str]:
        """Texts that must not be logged."""

    @abstractmethod
    def meet(self, trouble: Trouble | None, device: int = 1) -> None:
        """Let the pushes of a device meet a trouble from now on, or none."""

    @abstractmethod
    def delivered(self) -> Counter[int]:
        """The pushes that reached each device."""

    @abstractmethod
    def expire_credentials(self) -> None:
        """From now on the service refuses what it has accepted before."""

    @property
    @abstractmethod
    def port(self) -> int:
        """Where the service listens."""

    @abstractmethod
    async def leave(self) -> None:
        """Break all connections and accept no more."""

    @abstractmethod
    async def come_back(self) -> None: ...


class _Http2Place(Place):
    """A provider over HTTP/2 before a fake with our behaviours."""

    troubles: Mapping[Trouble, Behaviour]

    def __init__(self, provider: Provider, clock: HeldTime, fake: FakeApns) -> None:
        super().__init__(provider, clock)
        self.fake = fake

    def secrets(self, device: int) -> list[str]:
        return [self.token(device).decode()]

    def meet(self, trouble: Trouble | None, device: int = 1) -> None:
        self.fake.script.clear(self.token(device))
        if trouble is Trouble.GOAWAY:  # a service that always went away would deliver nothing
            self.fake.behave(GoAway(), device_token=self.token(device))
        elif trouble is not None:
            self.fake.behave(self.troubles[trouble], device_token=self.token(device), times=None)

    def delivered(self) -> Counter[int]:
        return Counter(int(push.device_token[-4:]) for push in self.fake.pushes)

    @property
    def port(self) -> int:
        return self.fake.port

    async def leave(self) -> None:
        self.fake.refuse_connections()
        self.fake.close_connections()

    async def come_back(self) -> None:
        await self.fake.listen()


_HTTP2_TROUBLES: Final[dict[Trouble, Behaviour]] = {
    Trouble.REDIRECT: Respond(307),
    Trouble.HUGE_ANSWER: Respond(500, body=b"x" * 1_000_000),
    Trouble.GARBAGE: SendRaw(b"\0" * 64),
    Trouble.LOST: CloseConnection(),
    Trouble.STALL: Hold(),
}


class ApnsPlace(_Http2Place):
    kind = PushProvider.APNS_TEST
    troubles = {  # noqa: RUF012 - never changed
        **_HTTP2_TROUBLES,
        Trouble.INVALID_TOKEN: Respond(410, "Unregistered"),
        Trouble.RATE_LIMITED: Respond(429, "TooManyRequests", retry_after="7"),
        Trouble.OVERLOADED: Respond(503, "ServiceUnavailable", retry_after="3"),
    }

    def token(self, device: int) -> bytes:
        return b"ab%04d" % device

    def expire_credentials(self) -> None:
        self.clock.time += 2 * 3600


class FcmPlace(_Http2Place):
    kind = PushProvider.FCM
    troubles = {  # noqa: RUF012 - never changed
        **_HTTP2_TROUBLES,
        Trouble.INVALID_TOKEN: Respond(404, "UNREGISTERED"),
        Trouble.RATE_LIMITED: Respond(429, "QUOTA_EXCEEDED", retry_after="7"),
        Trouble.OVERLOADED: Respond(503, "UNAVAILABLE", retry_after="3"),
    }

    def token(self, device: int) -> bytes:
        return REGISTRATION + b"%04d" % device

    def expire_credentials(self) -> None:
        assert isinstance(self.fake, FakeFcm)
        self.fake.revoke_tokens()


class WebPushPlace(Place):
    kind = PushProvider.WEBPUSH
    troubles: Final[Mapping[Trouble, WebPushBehaviour]] = {
        Trouble.INVALID_TOKEN: Answer(410),
        Trouble.RATE_LIMITED: Answer(429, {"Retry-After": "7"}),
        Trouble.OVERLOADED: Answer(503, {"Retry-After": "3"}),
        Trouble.REDIRECT: Answer(307, {"Location": "https://127.0.0.1/"}),
        Trouble.HUGE_ANSWER: Answer(500, body=b"x" * 1_000_000),
        Trouble.GARBAGE: Raw(b"not HTTP at all\r\n\r\n", close=False),
        Trouble.LOST: HANG_UP,
        Trouble.STALL: STALL,
        Trouble.GOAWAY: Answer(201, {"Connection": "close"}),
    }

    def __init__(
        self, provider: Provider, clock: HeldTime, service: WebPushService, form: WebPushForm
    ) -> None:
        super().__init__(provider, clock)
        self._service = service
        self._form = form
        self._delivered: Counter[int] = Counter()
        self._phones: dict[int, WebPushPhone] = {}
        service.now = clock
        service.on_accepted = lambda received: self._delivered.update([int(received.path[-4:])])

    def _phone(self, device: int) -> WebPushPhone:
        phone = WebPushPhone(self._service, path=f"/secret-{device:04}", form=self._form)
        return self._phones.setdefault(device, phone)

    def token(self, device: int) -> bytes:
        return self._phone(device).token

    def secrets(self, device: int) -> list[str]:
        return [self._phone(device).path, self._phone(device).host]

    def meet(self, trouble: Trouble | None, device: int = 1) -> None:
        path = self._phone(device).path
        self._service.by_path.pop(path, None)
        if trouble is not None:
            self._service.by_path[path] = self.troubles[trouble]

    def delivered(self) -> Counter[int]:
        return self._delivered.copy()

    def expire_credentials(self) -> None:
        self.clock.time += AUTHORIZATION_SECONDS + 1

    @property
    def port(self) -> int:
        return self._service.port

    async def leave(self) -> None:
        await self._service.leave()

    async def come_back(self) -> None:
        await self._service.listen()


@asynccontextmanager
async def _apns(folder: Path, timeout: float) -> AsyncIterator[ApnsPlace]:
    clock, key = HeldTime(), ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    async with running_fake_apns(folder, rules=Rules(public_key=key.public_key()), now=clock) as apns:
        settings = ApnsSettings(connect_timeout=timeout, request_timeout=timeout)
        token = ProviderToken(pem, "H82WD9K9AQ", "5NN7GUYB6T", clock)
        yield ApnsPlace(
            ApnsProvider(ApnsEndpoint(apns.host, apns.port, apns.ca_file), settings, token), clock, apns
        )


@asynccontextmanager
async def _fcm(folder: Path, timeout: float) -> AsyncIterator[FcmPlace]:
    clock = HeldTime()
    async with running_fake_fcm(folder, now=clock) as fcm:
        yield FcmPlace(FcmProvider(fcm_settings(fcm, timeout=timeout), account_of(fcm), clock), clock, fcm)


@asynccontextmanager
async def _web_push(form: WebPushForm, folder: Path, timeout: float) -> AsyncIterator[WebPushPlace]:
    clock = HeldTime()
    async with WebPushService(folder).running() as service:
        settings = web_push_settings(ca_file=service.ca_file, timeout=timeout)
        yield WebPushPlace(WebPushProvider(settings, KEY, service.find, clock), clock, service, form)


PLACES: Final[Mapping[str, Callable[[Path, float], AbstractAsyncContextManager[Place]]]] = {
    "APNs": _apns,
    "FCM": _fcm,
    "Web Push": partial(_web_push, WebPushForm.COMPACT),
    "Web Push, reference form": partial(_web_push, WebPushForm.REFERENCE),
}


@asynccontextmanager
async def place_of(name: str, folder: Path, timeout: float = TIMEOUT) -> AsyncIterator[Place]:
    """A provider whose tasks all end with it."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
    async with PLACES[name](folder, timeout) as place:
        before = asyncio.all_tasks()
        try:
            yield place
        finally:
            await place.provider.close()
        assert not [task for task in asyncio.all_tasks() - before if "tocsin" in repr(task)]
    assert unhandled == []
