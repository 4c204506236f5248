"""The options that all jobs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tocsin.pipeline.spark.session import LOCAL, SparkSettings


@dataclass(frozen=True, slots=True)
class JobOptions:
    lake: Path
    master: str = LOCAL
    memory: str = "2g"
    spark_options: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False
    as_json: bool = False

    def spark(
        self, job: str, *, short: bool = False, many_rows: bool = False, shuffle_partitions: int = 4
    ) -> SparkSettings:
        return SparkSettings(
            f"tocsin {job}",
            master=self.master,
            memory=self.memory,
            short=short,
            many_rows=many_rows,
            shuffle_partitions=shuffle_partitions,
            options=self.spark_options,
        )
