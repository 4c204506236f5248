"""Measures `tocsin pipeline reconcile` with equally many ids on both sides and drift at under 1 % of SMP routers.

python -m bench.pipeline_reconcile                  20 million ids on each side, takes some minutes
python -m bench.pipeline_reconcile --ids 4000000    fewer
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bench.process_tree import spent
from bench.results import Result, show
from tocsin.pipeline.reconcile.drift_search import entries, reconcile
from tocsin.pipeline.reconcile.export_files import Exports
from tocsin.pipeline.spark.session import SparkSettings, spark_session
from tocsin.pipeline.synthetic.queues import SyntheticQueues, notifier_queues, subscribed_queues

IDS: Final = 20_000_000
CPU: Final = 60.0
FILES: Final = 8


def make_exports(spark: SparkSession, folder: Path, ids: int, queues: SyntheticQueues) -> Exports:
    """As the commands write them: queues of one SMP router together."""

    def written(rows: DataFrame, name: str) -> DataFrame:
        path = str(folder / name)
        rows.repartitionByRange(FILES, "server").sortWithinPartitions("server").write.parquet(path)
        return spark.read.schema(rows.schema).parquet(path)

    return Exports(
        written(subscribed_queues(spark.range(ids), queues), "subscriptions"),
        written(notifier_queues(spark.range(ids), queues), "notifiers"),
        {server: f"smp://AAEC@smp{server}.example" for server in range(queues.servers)},
    )


def measure_reconcile(spark: SparkSession, ids: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        queues = SyntheticQueues()
        exports = make_exports(spark, Path(folder), ids, queues)
        with spent() as whole, reconcile(spark, exports) as found:
            planned = sum(1 for _ in entries(found))
        assert len(found.differing) == queues.drifting
        assert planned == found.queues
    scale = CPU * ids / IDS
    share = queues.drifting / queues.servers
    return [
        Result(
            f"reconcile, 2 × {ids:,} ids, {share:.1%} of routers drift: CPU",
            whole.cpu,
            "s",
            whole.cpu / scale,
            1.0,
        ),
        Result("reconcile: wall time", whole.wall, "s"),
        Result("reconcile: ids per second of CPU", 2 * ids / whole.cpu, "ids/s"),
        Result("reconcile: memory of the largest process", whole.memory / 2**30, "GiB"),
        Result("reconcile: entries of the plan", planned, "queues"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_reconcile", description=__doc__)
    parser.add_argument("--ids", type=int, default=IDS, help="on each side (default: %(default)s)")
    options = parser.parse_args()
    settings = SparkSettings("bench", master="local[2]", memory="4g", shuffle_partitions=8)
    with spark_session(settings) as spark:
        results = measure_reconcile(spark, options.ids)
    show("reconcile", results)


if __name__ == "__main__":
    main()
