"""`tocsin pipeline …`: answers from the routers' delivery event logs, on Spark."""

from __future__ import annotations

from tocsin.cli import (
    pipeline_build,
    pipeline_compact,
    pipeline_deliver,
    pipeline_explain,
    pipeline_fanout,
    pipeline_ingest,
    pipeline_reconcile,
    pipeline_replay,
    pipeline_report,
    pipeline_simulate,
)

NAME = "pipeline"
SUMMARY = "turn delivery events into answers, on Spark"
DESCRIPTION = (
    "Jobs over the routers' delivery event logs: the delivery funnel with an accounting that adds up, latencies, token "
    "health, drift between routers. They run on this machine, or unchanged on a Spark cluster (--master)."
)
EXAMPLE = "tocsin pipeline ingest --events ntf-events --available-now && tocsin pipeline build"
SUBCOMMANDS = (
    pipeline_ingest,
    pipeline_build,
    pipeline_report,
    pipeline_explain,
    pipeline_reconcile,
    pipeline_replay,
    pipeline_deliver,
    pipeline_fanout,
    pipeline_compact,
    pipeline_simulate,
)
