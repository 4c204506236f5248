"""The state of the job on Spark, as its process and its status file tell it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from tocsin.lab.deliver_job import JOB, STALE_SECONDS, DeliverJob, JobPhase
from tocsin.lab.processes import LabRouter, Ports
from tocsin.pipeline.lake.status_files import JobStatus, write_status


class FakeJob(DeliverJob):
    """Its process runs or not, as the test says."""

    alive = True

    @property
    def running(self) -> bool:
        return self.alive


@pytest.fixture
def job(tmp_path: Path) -> FakeJob:
    return FakeJob(tmp_path, Ports(1, 2, 3, 4, spark=5), LabRouter("ntf", tmp_path, 2))


def phase(job: DeliverJob) -> JobPhase:
    job.look()
    return job.phase


def test_it_is_off_then_starting_then_pushing_then_gone(job: FakeJob, tmp_path: Path) -> None:
    write_status(tmp_path / "lake", JOB, "running", {"batches": 9})  # of an earlier process
    assert phase(job) is JobPhase.OFF
    job._began = time.time()
    assert phase(job) is JobPhase.STARTING
    assert job.figures == {}
    write_status(tmp_path / "lake", JOB, "running", {"batches": 1})
    assert phase(job) is JobPhase.PUSHING
    assert job.figures == {"batches": 1}
    job.alive = False
    assert phase(job) is JobPhase.GONE


def test_a_job_that_says_nothing_for_long_is_late(job: FakeJob, tmp_path: Path) -> None:
    job._began = time.time() - 2 * STALE_SECONDS
    write_status(tmp_path / "lake", JOB, "running")
    old = JobStatus(JOB, "running", time.time() - STALE_SECONDS - 1)
    (tmp_path / "lake" / "_status" / f"{JOB}.json").write_bytes(msgspec.json.encode(old))
    assert phase(job) is JobPhase.LATE


async def test_waiting_ends_when_it_pushes_and_when_it_has_ended(job: FakeJob, tmp_path: Path) -> None:
    job._began = time.time()
    assert not await job.until_pushing(0.0)
    write_status(tmp_path / "lake", JOB, "running")
    assert await job.until_pushing(60.0)
    job.alive = False
    assert not await job.until_pushing(60.0)
    assert job.page == "http://127.0.0.1:5"


class FailingJob(FakeJob):
    """It ends at once, and pushes only in its third life."""

    begun = 0

    async def wait(self) -> int:
        return 1

    async def begin(self) -> None:
        self.begun += 1
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")
        self._began = time.time()
        self._status = None
        if self.begun == 3:
            write_status(self._lake, JOB, "running")


async def test_a_job_that_never_pushes_is_restarted_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr("tocsin.lab.deliver_job.asyncio.sleep", pause)
    job = FailingJob(tmp_path, Ports(1, 2, 3, 4), LabRouter("ntf", tmp_path, 2))
    await job.begin()
    with pytest.raises(asyncio.CancelledError):
        await job.keep_running(lambda: None)
    assert pauses == [2.0, 4.0, 1.0, 2.0]
