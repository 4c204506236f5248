"""A fake of both Google endpoints, tokens and messages, that misbehaves on command, over real TLS and HTTP/2.

async with running_fake_fcm(folder) as fcm:
    fcm.behave(Respond(404, "UNREGISTERED"))
    fcm.behave_tokens(Respond(400, "invalid_grant"))
    ...
    push = await fcm.next_push(b"registration")

Both endpoints share a port. The key file of a service account, which names the port, is written into the folder.
"""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tocsin.push.fake.behaviours import ACCEPT, Behaviour, Delay, Respond, Script
from tocsin.push.fake.fcm_checks import EMAIL, WRONG_TOKEN, error_body, wrong_assertion, wrong_field
from tocsin.push.fake.server import NAMES, FakeApns, server_context
from tocsin.push.fake.session import FakeRequest, FakeSession, SessionOptions

PROJECT: Final = "fake-project"
ACCOUNT_FILE: Final = "fake-fcm-service-account.json"
TOKEN_PATH: Final = b"/token"
TOKEN_ENDPOINT: Final = b"(token endpoint)"
"""Stands for the device token of requests for access tokens."""


class FakeFcm(FakeApns):
    """Made by `running_fake_fcm`. `next_push` and `next_request` return messages, not requests for tokens."""

    def __init__(
        self, context: ssl.SSLContext, ca_file: Path, options: SessionOptions, now: Callable[[], float]
    ) -> None:
        super().__init__(context, ca_file, None, options, now)
        self.project = PROJECT
        self.token_requests: list[str] = []
        """The answer to each request for an access token: `token`, or an error."""
        self.token_life = 3600
        self.token_script = Script()
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._asked_for_token = False
        """Whether the last request was one for an access token."""
        self._tokens: dict[str, float] = {}
        """Access tokens, and the times at which they expire."""

    @property
    def token_url(self) -> str:
        return f"https://{self.host}:{self.port}{TOKEN_PATH.decode()}"

    def account(self) -> dict[str, str]:
        """The key file of the service account."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "type": "service_account",
            "project_id": self.project,
            "private_key_id": "fake",
            "private_key": pem.decode(),
            "client_email": EMAIL,
            "token_uri": self.token_url,
        }

    def behave_tokens(self, behaviour: Behaviour, *, times: int | None = 1) -> None:
        """Set the behaviour of the token endpoint for the next requests, or until changed (`times=None`)."""
        self.token_script.add(behaviour, None, times)

    def revoke_tokens(self) -> None:
        """Refuse all access tokens that were given out."""
        self._tokens.clear()

    def _device_token(self, request: FakeRequest) -> bytes:
        if dict(request.headers).get(b":path") == TOKEN_PATH:
            return TOKEN_ENDPOINT
        try:
            return str(json.loads(request.body)["message"]["token"]).encode("utf-8", "replace")
        except (ValueError, KeyError, TypeError, RecursionError):
            return b""

    def _behaviour(self, token: bytes, request: FakeRequest, now: float) -> Behaviour:
        self._asked_for_token = token == TOKEN_ENDPOINT
        if self._asked_for_token:
            self.requests.pop()
            return self._token_behaviour(request, now)
        wrong = self._refusal(request, now)
        return _with_body(self.script.take(token)) if wrong is None else wrong

    def performed(self, behaviour: Behaviour) -> None:
        if not self._asked_for_token:
            super().performed(behaviour)

    def answered(self, session: FakeSession, stream_id: int, respond: Respond) -> None:
        is_token = self._open[session.number, stream_id].device_token == TOKEN_ENDPOINT
        super().answered(session, stream_id, replace(respond, delivered=False) if is_token else respond)

    # Access tokens

    def _token_behaviour(self, request: FakeRequest, now: float) -> Behaviour:
        wrong = wrong_assertion(request, self._key.public_key(), self.token_url, now)
        behaviour = self.token_script.take(TOKEN_ENDPOINT) if wrong is None else Respond(400, wrong)
        if isinstance(behaviour, Respond) and behaviour.status != 200:
            self.token_requests.append(behaviour.reason or str(behaviour.status))
            said = json.dumps({"error": behaviour.reason}).encode()
            return behaviour if behaviour.body is not None else replace(behaviour, body=said)
        self.token_requests.append("token")
        given = Respond(200, delivered=False, body=self._new_token(now))
        if behaviour == ACCEPT:
            return given
        return replace(behaviour, then=given) if isinstance(behaviour, Delay) else behaviour

    def _new_token(self, now: float) -> bytes:
        text = f"ya29.{secrets.token_urlsafe(24)}"
        self._tokens[text] = now + self.token_life
        said = {"access_token": text, "expires_in": self.token_life, "token_type": "Bearer"}
        return json.dumps(said).encode()

    # Messages

    def _refusal(self, request: FakeRequest, now: float) -> Respond | None:
        """Return the answer to a request that Google would refuse."""
        fields = dict(request.headers)
        if fields.get(b":method") != b"POST" or fields.get(b"content-type") != b"application/json":
            return _refused(400, "INVALID_ARGUMENT")
        if fields.get(b":path") != f"/v1/projects/{self.project}/messages:send".encode():
            return _refused(404, None)
        scheme, _, token = fields.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme != "Bearer" or self._tokens.get(token, 0.0) <= now:
            return _refused(401, None)
        wrong = wrong_field(request.body)
        if wrong == "message.token":  # Google names no field then
            return _refused(400, "INVALID_ARGUMENT", message=WRONG_TOKEN)
        return None if wrong is None else _refused(400, "INVALID_ARGUMENT", field=wrong)


def _refused(status: int, reason: str | None, *, message: str = "", field: str | None = None) -> Respond:
    return Respond(status, reason, body=error_body(status, reason, message=message, field=field))


def _with_body(behaviour: Behaviour) -> Behaviour:
    """Answer as Google: with the message's name, or with an error of its form."""
    if isinstance(behaviour, Delay):
        return replace(behaviour, then=_answer(behaviour.then))
    return _answer(behaviour) if isinstance(behaviour, Respond) else behaviour


def _answer(respond: Respond) -> Respond:
    if respond.body is not None:
        return respond
    name = json.dumps({"name": f"projects/{PROJECT}/messages/{secrets.token_hex(8)}"}).encode()
    return replace(
        respond, body=name if respond.status == 200 else error_body(respond.status, respond.reason)
    )


@asynccontextmanager
async def running_fake_fcm(
    folder: Path,
    *,
    options: SessionOptions | None = None,
    names: Sequence[str] = NAMES,
    host: str = "127.0.0.1",
    port: int = 0,
    now: Callable[[], float] = time.time,
) -> AsyncIterator[FakeFcm]:
    """Run a fake of Google's endpoints. It creates a certificate if there is none, and an account. Raises OSError."""
    context, certificate = server_context(folder, names)
    fcm = FakeFcm(context, certificate, options or SessionOptions(), now)
    await fcm.listen(host, port)
    account = folder / ACCOUNT_FILE
    account.touch(mode=0o600)
    account.write_text(json.dumps(fcm.account()))
    try:
        yield fcm
    finally:
        await fcm.stop()
