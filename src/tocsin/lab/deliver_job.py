"""The `deliver` job of `tocsin up`: Spark, which pushes for phones that are given to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NoReturn

from tocsin.lab.processes import QUICK_JAVA, RESTART_SECONDS, ChildProcess, LabRouter, Ports
from tocsin.pipeline.lake.status_files import JobStatus, read_statuses

JOB: Final = "deliver"
ENTRANCE: Final = "spark"
"""The entrance of the push provider by which this job comes."""
MEMORY: Final = "512m"
"""The memory of Spark's driver, which does all the work here."""
LOOK_SECONDS: Final = 0.2
LONGEST_PAUSE: Final = 60.0
STALE_SECONDS: Final = 15.0
"""A running job writes its status every second; one that is so old is late."""


class JobPhase(StrEnum):
    OFF = "off"
    STARTING = "starting"
    PUSHING = "pushing"
    LATE = "late"
    GONE = "gone"


class DeliverJob(ChildProcess):
    """One process with a Java of its own. It reads what the NTF router hands over in a folder."""

    def __init__(self, folder: Path, ports: Ports, router: LabRouter) -> None:
        super().__init__(JOB, folder)
        self.handover: Final = folder / "handover"
        self._lake = folder / "lake"
        self._ports = ports
        self._router = router
        self._began = 0.0
        self._status: JobStatus | None = None
        self.restarts = 0

    @property
    def page(self) -> str:
        """The address of Spark's own page."""
        return f"http://127.0.0.1:{self._ports.spark}"

    async def begin(self) -> None:
        """Start it with the settings of the router, but with its own way to the provider."""
        self._began = time.time()
        self._status = None
        own_way = {"TOCSIN_NTF_APNS_TEST_PORT": self._ports.spark_push}
        settings = {**QUICK_JAVA, **self._router.environment, **own_way}
        await self.start(
            "pipeline",
            "deliver",
            "--folder",
            self._router.config,
            "--handover",
            self.handover,
            "--lake",
            self._lake,
            "--memory",
            MEMORY,
            "--conf",
            "spark.ui.enabled=true",
            "--conf",
            f"spark.ui.port={self._ports.spark}",
            settings=settings,
        )

    def look(self) -> None:
        """Read its status. What an earlier process wrote does not count."""
        found = read_statuses(self._lake).get(JOB)
        self._status = found if found is not None and found.at >= self._began else None

    @property
    def phase(self) -> JobPhase:
        if not self._began:
            return JobPhase.OFF
        if not self.running:
            return JobPhase.GONE
        if self._status is None or self._status.state != "running":
            return JobPhase.STARTING
        return JobPhase.LATE if time.time() - self._status.at > STALE_SECONDS else JobPhase.PUSHING

    @property
    def figures(self) -> Mapping[str, Any]:
        """The job's last report about its batches and its state."""
        return {} if self._status is None else self._status.figures

    async def until_pushing(self, patience: float) -> bool:
        """Whether it pushes within this time. It ends early if the job does."""
        until = time.monotonic() + patience
        while self.running and time.monotonic() < until:
            self.look()
            if self.phase is JobPhase.PUSHING:
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def keep_running(self, changed: Callable[[], object]) -> NoReturn:
        """Restart the job whenever it ends, and keep its previous log. One that never pushes waits longer each time."""
        failures = 0
        while True:
            await self.wait()
            self.look()
            failures = failures + 1 if self._status is None else 0
            changed()
            await asyncio.sleep(min(RESTART_SECONDS * 2**failures, LONGEST_PAUSE))
            self.log.replace(self.log.with_suffix(".previous.log"))
            await self.begin()
            self.restarts += 1
            changed()
