"""`tocsin agent …` as a person or a program calls it, in this process or as one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doubles.agent_harness import ntf_address, smp_address
from tests.doubles.ntf_harness import NtfHarness
from tests.doubles.smp_harness import PATIENCE, SmpHarness
from tocsin.cli.main import run

SECONDS = str(PATIENCE)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    error: str

    def json(self) -> dict[str, Any]:
        """The one object that was printed."""
        [line] = self.lines()
        return line

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class AgentCommands:
    """One agent's folder."""

    folder: Path
    device_token: bytes = b"abcd1234"

    @property
    def device_text(self) -> str:
        return f"apns_test {self.device_token.decode()}"

    async def __call__(self, *arguments: str, timeout: str = SECONDS) -> Ran:
        """In a thread, which has its own event loop."""
        return await asyncio.to_thread(self._run, self._words(arguments, timeout))

    async def ok(self, *arguments: str) -> dict[str, Any]:
        """With --json; must succeed."""
        ran = await self(*arguments, "--json")
        assert ran.code == 0, ran
        return ran.json()

    async def process(
        self, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None
    ) -> Ran:
        """As a process of its own, from the start of Python to its exit code."""
        started = await asyncio.create_subprocess_exec(
            *self.process_words(*arguments),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, **(environment or {})},
        )
        out, error = await started.communicate(stdin)
        assert started.returncode is not None
        return Ran(started.returncode, out.decode(), error.decode())

    def process_words(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tocsin", *self._words(arguments, SECONDS)]

    async def init(self, smp: SmpHarness, ntf: NtfHarness) -> None:
        servers = ["--smp-server", str(smp_address(smp)), "--ntf-server", str(ntf_address(ntf))]
        await self.ok("init", *servers)

    async def activate(self, ntf: NtfHarness) -> None:
        await self.ok("register", self.device_text)
        await self.ok("verify", await self.push(ntf))

    async def push(self, ntf: NtfHarness) -> str:
        """The payload of the next push to this agent's device."""
        return (await ntf.provider.next_request(self.device_token)).payload.decode()

    def _words(self, arguments: tuple[str, ...], timeout: str) -> list[str]:
        return ["agent", *arguments, "--folder", str(self.folder), "--timeout", timeout]

    @staticmethod
    def _run(words: list[str]) -> Ran:
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = run(words)
        return Ran(code, out.getvalue(), error.getvalue())


async def connected_commands(alice: AgentCommands, bob: AgentCommands) -> tuple[str, str]:
    """A connection by which Bob can send to Alice; its ids at each."""
    invited = await alice.ok("connect")
    joined = await bob.ok("connect", invited["invitation"])
    return invited["connection"], joined["connection"]
