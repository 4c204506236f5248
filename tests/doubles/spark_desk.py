"""One Spark session for many `tocsin pipeline` commands: starting Spark takes longer than the jobs of a test.

`python -m tests.doubles.spark_desk JSON` is told `master` and `options` of Spark, and `executors_only`. It reads a
command from each line of standard input, a JSON list of words, and answers with a line of JSON: its exit code and what
it printed.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Final, NamedTuple

from tests.doubles.spark_cluster import QUICK_JAVA
from tocsin.cli.main import run as tocsin
from tocsin.pipeline.jobs import build, deliver, explain, fanout, ingest, reconcile, replay
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, SparkSettings, query_settings, spark_session
from tocsin.pipeline.update import notification_merge

JOBS: Final = (build, deliver, explain, fanout, ingest, reconcile, replay)
SHUFFLE_PARTITIONS: Final = 2
PATIENCE: Final = 60.0


class Said(NamedTuple):
    code: int
    output: str
    errors: str


class SparkDesk:
    """A process with a Spark session, for one command at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *words: object, code: int | None = 0) -> str:
        """Run `tocsin pipeline` with these words, and return its standard output. `code` None: any exit code."""
        said = self._ask([str(word) for word in words])
        assert code in (None, said.code), (said.output + said.errors)[-3000:]
        return said.output

    async def run(self, *words: object, code: int | None = 0) -> str:
        """The same, while the caller's other tasks go on."""
        return await asyncio.to_thread(self.ask, *words, code=code)

    @asynccontextmanager
    async def running(self, *words: object) -> AsyncIterator[None]:
        """A command that runs until it is stopped: at the end of the body."""
        running = asyncio.create_task(self.run(*words))
        try:
            yield
        finally:
            async with asyncio.timeout(PATIENCE):
                while not running.done():
                    self._process.terminate()  # again, if the command did not listen yet
                    await asyncio.wait([running], timeout=1)
        await running

    def _ask(self, words: list[str]) -> Said:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("["):  # others are of Java
                return Said(*json.loads(line))
        raise AssertionError("the desk is gone")


@contextmanager
def spark_desk(
    master: str = "local[2]", options: Mapping[str, str] | None = None, *, executors_only: bool = False
) -> Iterator[SparkDesk]:
    """`options` of Spark, beside those for few rows. With `executors_only` builds of few rows are theirs, too."""
    told = {"master": master, "options": dict(options or {}), "executors_only": executors_only}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(told)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | QUICK_JAVA,
    )
    try:
        yield SparkDesk(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait()
        process.stdout.close()


def serve(master: str, options: Mapping[str, str], *, executors_only: bool) -> None:
    if executors_only:
        notification_merge.DRIVERS_ROWS = 0  # type: ignore[misc]  # a process of its own, for this
    settings = SparkSettings(
        "tests",
        master=master,
        memory="1g",
        shuffle_partitions=SHUFFLE_PARTITIONS,
        short=True,
        options={**FOR_FEW_ROWS, **options},
    )
    answers = sys.stdout
    with spark_session(settings) as spark:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the command that runs, if one does
        for job in JOBS:
            job.spark_session = lambda _: nullcontext(spark)  # type: ignore[attr-defined]
        for line in sys.stdin:
            output, errors = io.StringIO(), io.StringIO()
            with (
                redirect_stdout(output),
                redirect_stderr(errors),
                query_settings(spark, {"spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS)}),
            ):
                code = tocsin(["pipeline", *json.loads(line)])
            print(json.dumps(Said(code, output.getvalue(), errors.getvalue())), file=answers, flush=True)


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
