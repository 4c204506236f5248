"""`tocsin pipeline run`: the whole service. Ingests all the time, and builds, reports and reconciles when it is due."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from tocsin.pipeline.jobs.ingest import IngestService
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import say_page
from tocsin.pipeline.jobs.reconcile import ReconcileOptions, reconcile_with
from tocsin.pipeline.jobs.report import METRICS, ReportOptions, report_of
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import STATUS, first_line, read_statuses, write_status
from tocsin.pipeline.lake.tables import EVENTS_TABLE, FUNNEL_TABLE
from tocsin.pipeline.service.metrics_port import metrics_port
from tocsin.pipeline.service.schedule import Schedule
from tocsin.pipeline.service.settings import PipelineSettings
from tocsin.pipeline.spark.session import spark_session
from tocsin.pipeline.spark.streams import StoppedError, stop_signals, stopping
from tocsin.pipeline.update.build import build_or_say_why, unbuilt
from tocsin.pipeline.update.event_stream import STREAM

NAME: Final = "pipeline"


def run_service(
    options: JobOptions, settings: PipelineSettings, retention: Mapping[str, int], *, once: bool = False
) -> int:
    """Runs until a signal arrives, or with `once` does everything one time. Returns 1 if a part failed in the end."""
    lake = options.open_lake()
    with (
        spark_session(options.spark(NAME, many_rows=True, ui=not once)) as spark,
        stop_signals() as stop,
    ):
        ingest = IngestService(spark, lake, settings.events, None, stop, ahead=settings.ahead)
        service = PipelineService(spark, lake, options, settings, retention)
        say_page(spark, NAME)
        try:
            with stopping(spark, stop), service.metrics() if not once else nullcontext():
                if once:
                    ingest.read_existing()
                    service.do_all()
                else:
                    ingest.follow(settings.every.ingest, service.do_due)
        except StoppedError as stopped:
            service.say(str(stopped))
        except Exception as error:
            write_status(lake.folder, STREAM, "failed", error=first_line(error))
            raise
        write_status(lake.folder, STREAM, "done")
    return 1 if service.failed else 0


class PipelineService:
    """The parts of the service. One that fails is reported and tried again when it is due; the others go on."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        options: JobOptions,
        settings: PipelineSettings,
        retention: Mapping[str, int],
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._options = options
        self._settings = settings
        self._retention = retention
        every = settings.every
        self.schedule = Schedule({"build": every.build, "reconcile": every.build, "report": every.report})
        self.failed: set[str] = set()

    def do_all(self) -> None:
        for part in self.schedule.every:
            self._do(part)

    def do_due(self) -> None:
        """Without events there is nothing to build or to report: both wait for the first, not for their interval."""
        waits = () if self._lake.table(EVENTS_TABLE).snapshot().rows else ("build", "report")
        for part in self.schedule.due(time.monotonic()):
            if part in waits:
                continue
            self._do(part)
            self.schedule.done(part, time.monotonic())

    @contextmanager
    def metrics(self) -> Iterator[None]:
        """Serves the metrics of the last check while the body runs, if the settings say where."""
        settings = self._settings
        if not settings.prometheus_port:
            yield
            return
        file = self._lake.folder / STATUS / METRICS
        with metrics_port(settings.prometheus_host, settings.prometheus_port, file) as port:
            self.say(f"metrics: http://{settings.prometheus_host}:{port}/metrics")
            yield

    def say(self, text: str) -> None:
        Console(stderr=True).print(f"{NAME}: {text}", highlight=False, soft_wrap=True)

    def _do(self, part: str) -> None:
        try:
            reason = getattr(self, f"_{part}")()
        except Exception as error:  # whatever Spark or the storage raises
            reason = first_line(error)
            write_status(self._lake.folder, part, "failed", error=reason)
        if reason:
            self.failed.add(part)
            self.say(f"{part}: {reason}")
        else:
            self.failed.discard(part)

    def _build(self) -> str:
        """Includes retention. Without new events only once an hour, so that an idle service costs nothing."""
        build = read_statuses(self._lake.folder).get("build")
        idle = not unbuilt(self._lake)["new_events"]
        if idle and build is not None and build.state == "done" and time.time() - build.at < 3600:
            return ""
        return build_or_say_why(
            self._spark, self._lake, self._settings.smallest_group, retention=self._retention
        )

    def _report(self) -> str:
        settings = self._settings
        if not self._lake.table(FUNNEL_TABLE).snapshot().rows:
            return ""  # nothing was built yet
        wanted = ReportOptions(Path(settings.report), days=settings.report_days, allowed=settings.allow)
        figures = report_of(self._lake, wanted, as_json=self._options.as_json)
        write_status(self._lake.folder, "report", "done")
        return "notifications are not accounted for: see the report" if figures.is_off(settings.allow) else ""

    def _reconcile(self) -> str:
        wanted = self._settings.reconcile
        if not wanted.ntf or not Path(wanted.ntf).exists():
            return ""
        last = read_statuses(self._lake.folder).get("reconcile")
        if last is not None and last.at >= Path(wanted.ntf).stat().st_mtime:
            return ""
        options = ReconcileOptions(
            Path(wanted.ntf),
            [Path(each) for each in wanted.smp],
            Path(wanted.plan),
            self._settings.smallest_group,
        )
        found = reconcile_with(self._spark, self._lake, options)
        write_status(self._lake.folder, "reconcile", "done", {"differing_routers": len(found.differing)})
        return ""
