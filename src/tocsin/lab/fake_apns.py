"""The program behind `tocsin fake-apns` and `fake-fcm`: a push provider that prints pushes, and misbehaves if told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeVar

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from rich.console import Console

from tocsin.errors import BadKey, TocsinError
from tocsin.operate.process import stop_signals
from tocsin.push.fake.behaviours import Behaviour, Respond
from tocsin.push.fake.control_lines import FCM_HELP, HELP, BadLine, obey, obey_fcm
from tocsin.push.fake.fcm import ACCOUNT_FILE, FakeFcm, running_fake_fcm
from tocsin.push.fake.request_checks import Rules
from tocsin.push.fake.server import NAMES, FakeApns, RecordedPush, running_fake_apns

_SHOWN_CHARACTERS: Final = 4
_KINDS: Final = ("verification", "message", "checkMessages")

F = TypeVar("F", bound=FakeApns)


class CannotListen(TocsinError):
    """The port is in use, or the folder is not writable."""


def _public_key(path: Path) -> ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadKey(
            f"{path} contains no public key in PEM form: name another file with --public-key"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadKey(f"{path} is not an ES256 key: name another file with --public-key")
    return key


async def serve(
    folder: Path, host: str, port: int, topic: str | None, public_key: Path | None, save: Path | None = None
) -> None:
    """Serve until SIGINT or SIGTERM. Raises BadKey or CannotListen."""
    rules = Rules(topic=topic, public_key=None if public_key is None else _public_key(public_key))
    running = running_fake_apns(folder, rules=rules, host=host, port=port, names=[*NAMES, host])
    await _run("fake-apns", running, host, save, lambda apns, line: obey(apns, line), HELP)


async def serve_fcm(folder: Path, host: str, port: int, save: Path | None = None) -> None:
    """Serve Google's endpoints until SIGINT or SIGTERM. Raises CannotListen."""
    running = running_fake_fcm(folder, host=host, port=port, names=[*NAMES, host])
    await _run("fake-fcm", running, host, save, obey_fcm, FCM_HELP)


async def _run(
    name: str,
    running: AbstractAsyncContextManager[F],
    host: str,
    save: Path | None,
    obey_line: Callable[[F, str], Awaitable[None]],
    help_text: str,
) -> None:
    console = Console(highlight=False, soft_wrap=True)
    loop = asyncio.get_running_loop()
    try:
        with stop_signals() as stop_requested:
            async with running as apns:
                console.print(f"listening on {host} port {apns.port}")
                console.print(f"certificate to trust: {apns.ca_file}")
                if isinstance(apns, FakeFcm):
                    console.print(f"key file of the service account: {apns.ca_file.with_name(ACCOUNT_FILE)}")

                def handle_push(push: RecordedPush, behaviour: Behaviour) -> None:
                    if save is not None and push.delivered:
                        _save(save, push)
                    console.print(shown(push, behaviour), markup=False)

                if save is not None:
                    await asyncio.to_thread(save.mkdir, mode=0o700, parents=True, exist_ok=True)
                apns.on_push = handle_push
                lines: asyncio.Queue[str] = asyncio.Queue()
                _read_lines(lambda line: loop.call_soon_threadsafe(lines.put_nowait, line))
                async with asyncio.TaskGroup() as tasks:
                    obeying = tasks.create_task(
                        _obey(lambda line: obey_line(apns, line), lines, console, help_text)
                    )
                    await stop_requested.wait()
                    obeying.cancel()
    except OSError as error:
        raise CannotListen(
            f"{name} cannot start: {error.strerror or error}. Choose another --port or --folder"
        ) from error


def _save(folder: Path, push: RecordedPush) -> None:
    """Write the file as a whole, because a program may be waiting for it. The token's letters are known to be safe."""
    file = folder / f"{push.device_token.decode('ascii')}.json"
    draft = file.with_suffix(".new")
    draft.write_bytes(_contents(push))
    draft.replace(file)


async def _obey(
    obey_line: Callable[[str], Awaitable[None]], lines: asyncio.Queue[str], console: Console, help_text: str
) -> None:
    while True:
        line = await lines.get()
        if line.split()[:1] == ["help"]:
            console.print(help_text, markup=False)
            continue
        try:
            await obey_line(line)
        except BadLine as error:
            console.print(str(error), markup=False)
        else:
            console.print(f"done: {line}", markup=False)


def _contents(push: RecordedPush) -> bytes:
    """The contents for the device: the payload, or the data of a message from Firebase."""
    if push.header(b"apns-push-type") is not None:
        return push.payload
    return json.dumps(json.loads(push.payload)["message"]["data"]).encode()


def _kind(push: RecordedPush) -> str:
    if (kind := push.header(b"apns-push-type")) is not None:
        return kind.decode("ascii", "replace")
    try:
        data = json.loads(push.payload)["message"]["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "?"
    return next((each for each in _KINDS if each in data), "?")


def shown(push: RecordedPush, behaviour: Behaviour) -> str:
    """A line without secrets: neither the whole device token nor the payload."""
    token = push.device_token[:_SHOWN_CHARACTERS].decode("ascii", "replace")
    if push.status is None:
        end = f"no answer ({type(behaviour).__name__})"
    else:
        reason = f" {behaviour.reason}" if isinstance(behaviour, Respond) and behaviour.reason else ""
        end = f"{push.status}{reason}, {'delivered' if push.delivered else 'not delivered'}"
    where = f"connection {push.connection}, stream {push.stream_id}"
    return f"{_kind(push)} for {token}…, {len(push.payload)} bytes, {where}: {end}"


def _read_lines(take: Callable[[str], object]) -> None:
    """Read in a thread, because standard input may be a file, a pipe or a terminal. Its end stops nothing."""

    def read() -> None:
        unfinished = b""
        # Not through sys.stdin: a thread waiting in it holds a lock that the interpreter needs to exit.
        while data := os.read(descriptor, 4096):
            *whole, unfinished = (unfinished + data).split(b"\n")
            for line in whole:
                if line.strip():
                    try:
                        take(line.decode("utf-8", "replace"))
                    except RuntimeError:  # the loop has ended
                        return

    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError):
        return
    threading.Thread(target=read, daemon=True).start()
