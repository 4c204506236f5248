"""Runs `tocsin pipeline` commands one after another with one Spark session: `python -m tests.doubles.spark_jobs JSON`.

The JSON has `master`, `options` of Spark, and `commands`, each a list of words. On standard output is a line for each
command: its summary. Starting Spark takes longer than the jobs of a test.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress

from tocsin.cli.main import run as tocsin
from tocsin.pipeline.jobs import deliver, fanout, reconcile
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, SparkSettings, spark_session


def run(master: str, options: dict[str, str], commands: list[list[str]]) -> None:
    few = {**FOR_FEW_ROWS, **options}
    settings = SparkSettings(
        "tests", master=master, memory="700m", shuffle_partitions=2, short=True, options=few
    )
    with spark_session(settings) as spark:
        for job in (deliver, fanout, reconcile):
            job.spark_session = lambda _: nullcontext(spark)  # type: ignore[attr-defined]
        for command in commands:
            code = tocsin(["pipeline", *command, "--json"])
            print(f"exit code {code}", flush=True)


class Said:
    """Output of the commands, line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = asyncio.Event()

    async def follow(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self.lines.append(line.decode(errors="replace"))
            self._news.set()

    async def until(self, words: str, patience: float = 120.0) -> None:
        async with asyncio.timeout(patience):
            while not any(words in line for line in self.lines):
                self._news.clear()
                await self._news.wait()

    def summaries(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]


@asynccontextmanager
async def spark_jobs(
    master: str, options: Mapping[str, str], commands: Sequence[Sequence[str]]
) -> AsyncIterator[Said]:
    """Runs the commands. At the end, stops the last of them and waits for it."""
    arguments = json.dumps({"master": master, "options": dict(options), "commands": commands})
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        arguments,
        start_new_session=True,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = Said()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(said.follow(process.stdout))
            try:
                yield said
            finally:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await process.wait() == 0, "".join(said.lines)[-3000:]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
