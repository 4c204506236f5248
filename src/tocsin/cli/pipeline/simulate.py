"""`tocsin pipeline simulate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin.cli.pipeline.job_options import add_job_options, add_out_option, job_options
from tocsin.pipeline.simulate.population import defaults

NAME = "simulate"
SUMMARY = "estimate the load of a population under three protocols"
DESCRIPTION = (
    "Estimates the load that a population of devices puts on routers, up to a billion queues: messages, notifications, "
    "pushes, connections, commands, bytes and CPU with a subscription per queue (NSUB), with services (NSUBS) and with "
    "direct notifications. Writes a page with plots, and CSV. It needs no lake. The file of --population can set "
    "further parameters (see the documentation)."
)
EXAMPLE = "tocsin pipeline simulate --tokens 1000000 --group-size 50 --out simulation"

DEFAULT_FOLDER: Final = Path("tocsin-simulation")
PARAMETERS: Final[dict[str, tuple[type[int] | type[float], str]]] = {
    "seed": (int, "seed: the same number gives the same population"),
    "tokens": (int, "number of devices"),
    "contacts-per-token": (float, "direct conversations of a device, on average"),
    "groups-per-token": (float, "groups of a device, on average"),
    "group-size": (float, "members of a group, on average"),
    "muted": (float, "share of conversations without notifications, 0 to 1"),
    "smp-routers": (int, "number of SMP routers"),
    "ntf-routers": (int, "number of NTF routers"),
    "smp-restarts": (float, "restarts of an SMP router per day"),
    "ntf-restarts": (float, "restarts of an NTF router per day"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_options(parser)
    add_out_option(parser, DEFAULT_FOLDER)
    parser.add_argument(
        "--population",
        type=Path,
        metavar="FILE",
        help="TOML or JSON file with parameters; options override it",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=25_000_000,
        metavar="N",
        help="devices to simulate one by one; larger populations are scaled up from them, and the output says how "
        "exact that is (default: %(default)s)",
    )
    values = defaults()
    for name, (kind, about) in PARAMETERS.items():
        default, _ = values[name.replace("-", "_")]
        parser.add_argument(f"--{name}", type=kind, metavar="N", help=f"{about} (default: {default})")


def run(options: argparse.Namespace) -> int:
    chosen = job_options(options)
    from tocsin.pipeline.jobs.simulate import SimulateOptions, run_simulate
    from tocsin.pipeline.simulate.population import load_population

    names = [name.replace("-", "_") for name in PARAMETERS]
    population = load_population(options.population, {name: getattr(options, name) for name in names})
    run_simulate(chosen, population, SimulateOptions(options.out, options.rows))
    return 0
