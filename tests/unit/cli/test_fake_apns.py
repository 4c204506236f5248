"""`tocsin fake-apns` as a person uses it."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tocsin.cli.main import run
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.provider import Accepted, PushRequest, RetryLater, RetryScope, Urgency
from tocsin.push.settings import ApnsEndpoint, ApnsSettings

TOKEN = b"0123456789abcdef"
PUSH = PushRequest(
    TOKEN, b'{"aps":{"alert":"secret"}}', Urgency.ALERT, "4ab13bbb-9ab4-4b86-a2ac-9d3a7ab1f41d", 0
)


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tocsin", "fake-apns", *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def test_pushes_are_shown_lines_obeyed_and_an_interrupt_ends_it(tmp_path: Path) -> None:
    async with started("--port", "0", "--folder", str(tmp_path / "apns")) as process:
        assert process.stdin is not None
        port = int((await line_of(process)).rpartition(" ")[2])
        ca_file = Path((await line_of(process)).partition(": ")[2])
        provider = ApnsProvider(ApnsEndpoint("localhost", port, ca_file), ApnsSettings(), None)
        assert await provider.send(PUSH) == Accepted()
        shown = [await line_of(process)]
        process.stdin.write(b"answer 429 TooManyRequests\n")
        shown.append(await line_of(process))
        assert await provider.send(PUSH) == RetryLater("TooManyRequests", RetryScope.TOKEN)
        shown.append(await line_of(process))
        assert shown == [
            "alert for 0123…, 26 bytes, connection 1, stream 1: 200, delivered",
            "done: answer 429 TooManyRequests",
            "alert for 0123…, 26 bytes, connection 1, stream 3: 429 TooManyRequests, not delivered",
        ]
        await provider.close()
        process.send_signal(signal.SIGINT)
        out, errors = await process.communicate()
        assert (process.returncode, out, errors) == (0, b"", b"")


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(["fake-apns", "--port", "0", "--folder", str(tmp_path / "file" / "x")]) == 1
    assert capsys.readouterr().err == (
        "tocsin: fake-apns cannot start: Not a directory. Choose another --port or --folder\n"
    )


@pytest.mark.parametrize("kind", ["none", "private"])
def test_a_public_key_must_be_one(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key.pem"
    if kind == "private":
        key = ec.generate_private_key(ec.SECP256R1())
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    assert run(["fake-apns", "--port", "0", "--folder", str(tmp_path), "--public-key", str(path)]) == 1
    assert "contains no public key" in capsys.readouterr().err


async def test_what_a_device_got_last_is_saved_for_it(tmp_path: Path) -> None:
    saved = tmp_path / "pushes"
    async with started("--port", "0", "--folder", str(tmp_path / "apns"), "--save", str(saved)) as process:
        assert process.stdin is not None
        port = int((await line_of(process)).rpartition(" ")[2])
        ca_file = Path((await line_of(process)).partition(": ")[2])
        provider = ApnsProvider(ApnsEndpoint("localhost", port, ca_file), ApnsSettings(), None)
        for text in ("first", "second"):
            payload = b'{"aps":{"alert":"%b"}}' % text.encode()
            push = PushRequest(TOKEN, payload, Urgency.ALERT, PUSH.push_id, 0)
            assert await provider.send(push) == Accepted()
            await line_of(process)
        process.stdin.write(b"lose\n")
        await line_of(process)
        assert await provider.send(PUSH) == Accepted()
        await line_of(process)
        await provider.close()
        assert [file.name for file in saved.iterdir()] == [f"{TOKEN.decode()}.json"]
        assert (saved / f"{TOKEN.decode()}.json").read_text() == '{"aps":{"alert":"second"}}'
        assert saved.stat().st_mode & 0o077 == 0
