"""A real Spark cluster on this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.doubles.java_classes import shared_classes
from tocsin.pipeline.spark.java import QUICK

SPARK = Path(pyspark.__file__).parent
NODE = [sys.executable, "-m", "tocsin", "pipeline", "node"]
EXECUTOR = b"CoarseGrainedExecutorBackend"
"""In the command of an executor."""
EXECUTORS = {
    "spark.cores.max": "2",
    "spark.executor.memory": "700m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK,
}
"""Settings of a job that wants an executor of each of two workers, and leaves as many to another job."""
LOOPBACK = "127.0.0.1"
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": f"{QUICK} {shared_classes()}".strip()}
"""Environment for short jobs, which thorough compilation would only slow down: it takes half their CPU."""


@dataclass(slots=True)
class SparkCluster:
    master: str
    log: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def executors(self) -> list[int]:
        """Process ids: those children of workers that are executors. Other children have ended already."""
        children: list[int] = []
        for process in self.processes:
            for path in Path(f"/proc/{process.pid}/task").glob("*/children"):
                with suppress(OSError):
                    children += map(int, path.read_text().split())
        return [each for each in children if EXECUTOR in _command(each)]

    def kill_an_executor(self) -> None:
        """Waits for one; kill -9."""
        until = time.monotonic() + 60
        while not (found := self.executors()):
            assert time.monotonic() < until, f"no executor started:\n{self.log.read_text()[-2000:]}"
            time.sleep(0.2)
        os.kill(found[0], signal.SIGKILL)


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def without_folder(hidden: Path) -> list[str]:
    """The beginning of a command that sees an empty folder of its own in place of this one."""
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--mount", "--propagation", "private", "sh", "-c", script, str(hidden)]


def can_hide_folders(folder: Path) -> bool:
    """Whether this system lets us do that."""
    try:
        return (
            subprocess.run([*without_folder(folder), "true"], capture_output=True, check=False).returncode
            == 0
        )
    except FileNotFoundError:
        return False


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, hidden: Path | None = None) -> Iterator[SparkCluster]:
    """`hidden`: a folder that workers and their executors do not see."""
    before = [] if hidden is None else without_folder(hidden)
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server((LOOPBACK, 0)) as probe:
        port = probe.getsockname()[1]
    cluster = SparkCluster(f"spark://{LOOPBACK}:{port}", folder / "cluster.log")
    environment = {
        **os.environ,
        **QUICK_JAVA,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    own = ["--host", LOOPBACK]
    with cluster.log.open("wb") as log:
        commands = [
            [*NODE, "master", *own, "--port", str(port)],
            *(
                [
                    *before,
                    *NODE,
                    "worker",
                    *own,
                    "--cores",
                    "2",
                    "--memory",
                    "1600m",
                    "--work",
                    str(folder / "work"),
                    "--of",
                    cluster.master,
                ]
                for _ in range(workers)
            ),
        ]
        try:
            for command in commands:
                process = subprocess.Popen(
                    command, env=environment, stdout=log, stderr=log, start_new_session=True
                )
                cluster.processes.append(process)
            _wait_for(cluster, workers)
            yield cluster
        finally:
            for process in reversed(cluster.processes):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait_for(cluster: SparkCluster, workers: int) -> None:
    until = time.monotonic() + 60
    while cluster.log.read_text(errors="replace").count("Successfully registered with master") < workers:
        assert time.monotonic() < until, f"the cluster did not start:\n{cluster.log.read_text()[-2000:]}"
        time.sleep(0.1)
