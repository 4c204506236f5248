"""`tocsin pipeline …`: one module per command, arguments in and text out. The jobs are in `tocsin.pipeline.jobs`."""

from __future__ import annotations

from tocsin.cli.pipeline import (
    build,
    compact,
    convert,
    deliver,
    explain,
    fanout,
    forget,
    ingest,
    init,
    node,
    rebuild,
    reconcile,
    replay,
    report,
    reread,
    run,
    simulate,
    tables,
)

NAME = "pipeline"
SUMMARY = "turn delivery events into answers, on Spark"
DESCRIPTION = (
    "Runs jobs over the routers' delivery event logs: the delivery funnel with an accounting that adds up, latencies, "
    "token health, drift between routers. Jobs run on this machine, or unchanged on a Spark cluster (--master)."
)
EXAMPLE = "tocsin pipeline init && tocsin pipeline run"
SUBCOMMANDS = (
    init,
    run,
    ingest,
    build,
    report,
    tables,
    explain,
    rebuild,
    reread,
    forget,
    reconcile,
    replay,
    deliver,
    fanout,
    compact,
    simulate,
    convert,
    node,
)
