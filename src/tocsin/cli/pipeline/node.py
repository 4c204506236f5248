"""`tocsin pipeline node`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin.cli.pipeline.job_options import require_spark
from tocsin.cli.terminal.option_types import count, port
from tocsin.errors import ConfigError

NAME = "node"
SUMMARY = "run the master or a worker of a Spark cluster"
DESCRIPTION = (
    "Runs the master or a worker of a standalone Spark cluster, with the Spark and the Java that are installed with "
    "Tocsin. Jobs use the cluster with --master spark://HOST:PORT. Anyone who can reach its ports can run programs on "
    "it, so keep it in a private network."
)
EXAMPLE = "tocsin pipeline node worker --of spark://spark-master:7077"
PORT: Final = 7077
ROLES: Final = ("master", "worker")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("role", choices=ROLES, help="run the master, or one of the workers")
    parser.add_argument("--of", metavar="URL", help="for a worker: its master, spark://HOST:PORT")
    parser.add_argument(
        "--host",
        metavar="HOST",
        help="the name at which others reach this process (default: this machine's name)",
    )
    parser.add_argument(
        "--port",
        type=port,
        help=f"port to listen on (default: {PORT} for the master, any free one for a worker)",
    )
    parser.add_argument(
        "--web-port", type=port, default=0, metavar="PORT", help="port of its page (default: any free one)"
    )
    parser.add_argument(
        "--cores", type=count, metavar="N", help="for a worker: cores that jobs may use (default: all)"
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="for a worker: memory that jobs may use, such as 4g (default: all but 1 GB)",
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="for a worker: folder for logs and files of jobs"
    )


def run(options: argparse.Namespace) -> int:
    """Does not return: this process becomes Spark's."""
    require_spark()
    arguments = _arguments(options)
    from tocsin.pipeline.spark.cluster_nodes import become_node

    become_node(options.role, arguments)


def _arguments(options: argparse.Namespace) -> list[str]:
    """Raises ConfigError for options of the other role."""
    worker = options.role == "worker"
    only_worker = {
        "--of": options.of,
        "--cores": options.cores,
        "--memory": options.memory,
        "--work": options.work,
    }
    wrong = [name for name, value in only_worker.items() if value is not None and not worker]
    if wrong:
        raise ConfigError(f"a master has no {wrong[0]}: leave it out, or run a worker")
    if worker and not (options.of or "").startswith("spark://"):
        raise ConfigError("a worker needs its master: --of spark://HOST:PORT")
    listens = options.port if options.port is not None or worker else PORT
    given = {
        "--host": options.host,
        "--port": listens,
        "--webui-port": options.web_port,
        "--cores": options.cores,
        "--memory": options.memory,
        "--work-dir": options.work,
    }
    named = [str(part) for name, value in given.items() if value is not None for part in (name, value)]
    return [*named, options.of] if worker else named
