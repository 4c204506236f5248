"""`tocsin pipeline compact`: a router's store log → the compact log that its router would make of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tocsin.errors import ConfigError, StoreError
from tocsin.events.private_files import write_private_lines
from tocsin.pipeline.compaction.compactors import BROKEN, SKIPPED
from tocsin.pipeline.compaction.store_logs import (
    KINDS,
    compact,
    compact_lines,
    first_broken,
    lines_by_section,
    partitions_for,
    read_log,
    stopped_router,
)
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.spark.cached_rows import cached
from tocsin.pipeline.spark.session import spark_session


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """Raises ConfigError for options that cannot work."""

    log: Path
    out: Path
    router: str | None = None
    """A key of `KINDS`; by default, the log's name says it."""
    skip_broken_lines: bool = False

    def __post_init__(self) -> None:
        if self.out.resolve() == self.log.resolve():
            raise ConfigError(
                f"{self.out} is the log itself: name another file with --out, and replace the log afterwards"
            )

    @property
    def log_router(self) -> str:
        if self.router:
            return self.router
        for router in KINDS:
            if self.log.name.startswith(f"{router}-server-store.log"):
                return router
        raise ConfigError(f"{self.log.name} does not name its router: add --router ntf or --router smp")


def run_compact(job: JobOptions, options: CompactOptions) -> int:
    """Returns the exit code. Raises ConfigError without a log, StoreError for broken lines or a running router."""
    summary, kind = Summary("compact"), KINDS[options.log_router]
    with (
        stopped_router(options.log.parent / kind.lock),
        spark_session(job.spark("compact", shuffle_partitions=8)) as spark,
        step(spark, "compact") as shown,
    ):
        lines = read_log(spark, options.log)
        shown("grouping lines")
        with cached(compact(spark, lines, kind, partitions_for(options.log))) as made:
            shown("compacting groups")
            counted = Counter({row["section"]: row["lines"] for row in lines_by_section(made).collect()})
            if counted[BROKEN] and not options.skip_broken_lines:
                raise StoreError(
                    f"{counted[BROKEN]} lines of {options.log} cannot be read, first: {first_broken(made)}. "
                    "To leave them out, add --skip-broken-lines"
                )
            if not job.dry_run:
                shown("writing")
                write_private_lines(options.out, compact_lines(made, len(kind.sections)))
    summary.add(**{name: counted[number] for number, name in enumerate(kind.sections)})
    summary.add(lines_about_nothing=counted[SKIPPED], broken_lines=counted[BROKEN])
    summary.add(was_bytes=options.log.stat().st_size)
    if not job.dry_run:
        summary.add(bytes=options.out.stat().st_size, compact_log=str(options.out))
    summary.show(as_json=job.as_json)
    return 0
