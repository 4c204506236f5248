"""The options that all jobs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tocsin.pipeline.lake.lake import Lake, existing_lake
from tocsin.pipeline.lake.places import TablePlace, table_place
from tocsin.pipeline.lake.status_files import DEFAULT_LAKE
from tocsin.pipeline.spark.session import SparkSettings, submitted_options


@dataclass(frozen=True, slots=True)
class JobOptions:
    lake: str | Path
    """A folder, or an address in object storage."""
    master: str | None = None
    """Where Spark runs. None: where `spark-submit` says, or on this machine."""
    memory: str = "2g"
    spark_options: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False
    as_json: bool = False
    storage: Mapping[str, str] = field(default_factory=dict)
    """Settings of object storage."""
    work: Path | None = None
    """The folder for status and progress of jobs, if it is not the lake's own."""

    @property
    def place(self) -> TablePlace:
        """Raises ConfigError for an address that is no place for tables."""
        return table_place(self.lake, self.storage)

    @property
    def folder(self) -> Path:
        """The local folder for status and progress of jobs."""
        return self.work or self.place.local or DEFAULT_LAKE

    def open_lake(self) -> Lake:
        """Creates it if it is missing."""
        return Lake(self.place, work=self.work)

    def existing_lake(self) -> Lake:
        """Raises StoreError if it is missing."""
        return existing_lake(self.place, work=self.work)

    def spark(
        self,
        job: str,
        *,
        short: bool = False,
        many_rows: bool = False,
        shuffle_partitions: int = 4,
        ui: bool = False,
    ) -> SparkSettings:
        """`ui`: for jobs that run for long. Spark's page is on loopback where we start Spark, and only there."""
        local = (self.master is None or self.master.startswith("local")) and not submitted_options()
        shown = {"spark.ui.enabled": "true"} if ui and local else {}
        return SparkSettings(
            f"tocsin {job}",
            master=self.master,
            memory=self.memory,
            short=short,
            many_rows=many_rows,
            shuffle_partitions=shuffle_partitions,
            options={**shown, **self.spark_options},
        )
