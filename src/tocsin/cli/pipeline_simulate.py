"""`tocsin pipeline simulate`: what a population would ask of routers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin.cli.pipeline_options import add_job_options, job_options

NAME = "simulate"
SUMMARY = "compute the load of a population under three protocols"
DESCRIPTION = (
    "Computes what a population of devices asks of routers, up to a billion queues: messages, notifications, pushes, "
    "connections, commands, bytes and CPU with a subscription per queue (NSUB), with services (NSUBS) and with direct "
    "notifications. Writes a page with plots, and CSV. The tables are not read: a lake is not needed. Parameters not "
    "named here (see the documentation) come from the file of --population."
)
EXAMPLE = "tocsin pipeline simulate --tokens 1000000 --group-size 50 --out simulation"

DEFAULT_FOLDER: Final = Path("tocsin-simulation")
PARAMETERS: Final = {
    "seed": int,
    "tokens": int,
    "contacts-per-token": float,
    "groups-per-token": float,
    "group-size": float,
    "muted": float,
    "smp-routers": int,
    "ntf-routers": int,
    "smp-restarts": float,
    "ntf-restarts": float,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_options(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="DIR",
        help="folder of the files (default: %(default)s)",
    )
    parser.add_argument("--population", type=Path, metavar="FILE", help="TOML or JSON with any parameters")
    parser.add_argument(
        "--rows",
        type=int,
        default=200_000,
        metavar="N",
        help="devices that are drawn one by one (default: %(default)s); more than these are taken to be like them",
    )
    for name, kind in PARAMETERS.items():
        parser.add_argument(f"--{name}", type=kind, metavar="N")


def run(options: argparse.Namespace) -> int:
    chosen = job_options(options)
    from tocsin.pipeline.jobs.simulate import SimulateOptions, run_simulate
    from tocsin.pipeline.simulate.population import load_population

    names = [name.replace("-", "_") for name in PARAMETERS]
    population = load_population(options.population, {name: getattr(options, name) for name in names})
    run_simulate(chosen, population, SimulateOptions(options.out, options.rows))
    return 0
