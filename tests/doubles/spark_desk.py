"""One Spark session for many `tocsin pipeline` commands: starting Spark takes longer than the jobs of a test.

`python -m tests.doubles.spark_desk` reads a command from each line of standard input, a JSON list of words, and answers
with a line of JSON: its exit code and what it printed.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Final, NamedTuple

from tests.doubles.spark_cluster import QUICK_JAVA
from tocsin.cli.main import run as tocsin
from tocsin.pipeline.jobs import build, explain, ingest, reconcile, replay
from tocsin.pipeline.spark.session import FOR_FEW_ROWS, SparkSettings, spark_session

JOBS: Final = (build, explain, ingest, reconcile, replay)


class Said(NamedTuple):
    code: int
    output: str
    errors: str


class SparkDesk:
    """A process with a Spark session, for one command at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def run(self, *words: object, code: int | None = 0) -> str:
        """Run `tocsin pipeline` with these words, and return its standard output. `code` None: any exit code."""
        said = await asyncio.to_thread(self._ask, [str(word) for word in words])
        assert code in (None, said.code), (said.output + said.errors)[-3000:]
        return said.output

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
def spark_desk() -> Iterator[SparkDesk]:
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
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


def serve() -> None:
    settings = SparkSettings("tests", shuffle_partitions=2, short=True, options=FOR_FEW_ROWS)
    answers = sys.stdout
    with spark_session(settings) as spark:
        for job in JOBS:
            job.spark_session = lambda _: nullcontext(spark)  # type: ignore[attr-defined]
        for line in sys.stdin:
            output, errors = io.StringIO(), io.StringIO()
            with redirect_stdout(output), redirect_stderr(errors):
                code = tocsin(["pipeline", *json.loads(line)])
            print(json.dumps(Said(code, output.getvalue(), errors.getvalue())), file=answers, flush=True)


if __name__ == "__main__":
    serve()
