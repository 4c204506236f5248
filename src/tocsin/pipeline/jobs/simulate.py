"""`tocsin pipeline simulate`: the load of a population on routers, under three protocols and at many sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import Summary, step
from tocsin.pipeline.report.files import write_files
from tocsin.pipeline.simulate.demand import Demand, SimulatedProtocol, demand
from tocsin.pipeline.simulate.page import demand_csv, how_exact, simulation_page
from tocsin.pipeline.simulate.population import Population
from tocsin.pipeline.simulate.simulated_tokens import simulated
from tocsin.pipeline.spark.session import spark_session

PAGE: Final = "simulation.html"
SIZES: Final = tuple(10**power for power in range(4, 10))
"""Numbers of queues of the populations that are compared."""
LEAST_ROWS: Final = 100
MOST_ROWS: Final = 25_000_000
"""More than a billion queues of the usual population have: 20.8 million devices, half a minute on two cores."""


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    folder: Path
    rows: int = MOST_ROWS
    """Devices that are simulated one by one. Sums of larger populations are scaled up from these."""

    def __post_init__(self) -> None:
        if self.rows < LEAST_ROWS:
            raise ConfigError(
                f"--rows {self.rows}: must be at least {LEAST_ROWS}, since fewer rows give random figures"
            )


def run_simulate(options: JobOptions, population: Population, simulate: SimulateOptions) -> Sequence[Demand]:
    """Returns the demands of this population. Raises StoreError if the files cannot be written."""
    summary = Summary("simulate")
    sizes = [population.tokens, *(max(round(size / population.queues_per_token), 1) for size in SIZES)]
    with spark_session(options.spark("simulate")) as spark, step(spark, "simulate") as shown:
        sums = simulated(spark, population, sizes, simulate.rows, shown)
    demands = [
        [demand(replace(population, tokens=each.tokens), each, protocol) for protocol in SimulatedProtocol]
        for each in sums
    ]
    own, scaling = demands[0], demands[1:]
    texts = {
        PAGE: simulation_page(population, own, scaling),
        "simulation.csv": demand_csv([own, *scaling]),
        "population.json": json.dumps(asdict(population), indent=1),
    }
    written = write_files(simulate.folder, texts)
    summary.add(
        tokens=population.tokens,
        queues=round(own[0].sums.queues),
        notifications_a_day=round(own[0].sums.notifications),
    )
    summary.add(pushes_a_day=round(own[0].sums.pushes), pushes_error=f"± {own[0].sums.error:.2%}")
    largest = scaling[-1][0].sums
    summary.add(largest_queues=round(largest.queues), largest_is=how_exact(largest))
    for each in own:
        name = each.protocol.name.lower()
        summary.add(**{f"{name}_commands_a_day": round(each.commands_a_day)})
        summary.add(**{f"{name}_commands_at_reconnect": round(each.reconnect_commands)})
    summary.add(page=str(written[0]))
    summary.show(as_json=options.as_json)
    return own
