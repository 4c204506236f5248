"""Measures the whole service, `tocsin pipeline run`, at a nearly idle server: 4 notifications a second.

python -m bench.pipeline_idle                    five minutes, after as many of warming up
python -m bench.pipeline_idle --seconds 60 --warm 60
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.pipeline_traffic import publish_segment
from bench.process_tree import spent
from bench.results import Result, show
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.status_files import read_statuses
from tocsin.pipeline.lake.tables import EVENTS_TABLE, NOTIFICATIONS_TABLE
from tocsin.pipeline.service.settings import new_settings

SECONDS: Final = 300.0
RATE: Final = 4
SEGMENT_SECONDS: Final = 5.0
CORES: Final = 0.1
START_SECONDS: Final = 300.0


def measure_idle(folder: Path, seconds: float = SECONDS, warm: float = SECONDS) -> list[Result]:
    """CPU of the service and of Java, while segments come. `warm`: how long it runs before, after a build."""
    source, lake = folder / "router", folder / "lake"
    source.mkdir(parents=True)
    settings = folder / "pipeline.toml"
    settings.write_text(new_settings(events=[source], lake=str(lake), report=folder / "report"))
    with service(settings):
        _publish_until(source, lambda: "build" in read_statuses(lake), START_SECONDS)
        _publish_until(source, lambda: False, warm)
        with spent() as used:
            _publish_until(source, lambda: False, seconds)
        tables = Lake(lake)
        events, built = (tables.table(each).snapshot() for each in (EVENTS_TABLE, NOTIFICATIONS_TABLE))
    cores = used.cpu / used.wall
    name = f"nearly idle service, {RATE} notifications a second for {seconds:.0f} s"
    return [
        Result(f"{name}: cores", cores, "", cores / CORES, 1.0),
        Result(f"{name}: CPU", used.cpu, "s"),
        Result(f"{name}: memory of the largest process", used.memory / 2**30, "GiB"),
        Result(f"{name}: events read since the start", events.rows, "events"),
        Result(f"{name}: notifications built since the start", built.rows, "notifications"),
    ]


@contextmanager
def service(settings: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "tocsin", "pipeline", "run", "--config", str(settings)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
            assert process.poll() is None, "the service has ended"
        finally:
            process.terminate()
            process.wait(60)


def _publish_until(source: Path, done: Callable[[], bool], seconds: float) -> None:
    """Publishes a segment now and then, until `done` or the time is over."""
    began = due = time.monotonic()
    while time.monotonic() < began + seconds and not done():
        time.sleep(min(0.5, max(0.0, due - time.monotonic())))
        if time.monotonic() >= due:
            due += SEGMENT_SECONDS
            publish_segment(source, [time.time()] * int(RATE * SEGMENT_SECONDS))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline_idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="default: %(default)s")
    parser.add_argument("--warm", type=float, default=SECONDS, help="seconds before (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show("idle", measure_idle(Path(folder), options.seconds, options.warm))


if __name__ == "__main__":
    main()
