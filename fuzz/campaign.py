"""Runs targets one after the other, each in a separate process, and keeps their findings."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fuzz.corpus import REGRESSIONS, regression_path, regressions, seeds
from fuzz.recordings import ROOT, VECTORS
from fuzz.targets import find

WORK: Final = ROOT / ".fuzz"
GRACE_SECONDS: Final = 60
"""How much longer than asked an engine may run (start, the seeds, its own end) before it is ended."""
TAIL_LINES: Final = 25

_PROGRESS: Final = re.compile(r"#(\d+)\s+\w+\s+(?:cov: (\d+) )?(?:ft: (\d+) )?corp: \d+/.*exec/s: (\d+)")
_EXECUTED: Final = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """The targets to run, and the folders for results."""

    targets: Sequence[str]
    seconds: int = 60
    runs: int | None = None
    seed: int = 1
    engine: str = "atheris"
    work: Path = WORK
    regressions: Path = REGRESSIONS
    vectors: Path = VECTORS


@dataclass(slots=True)
class Outcome:
    """The result of one target's run, filled while it runs."""

    target: str
    executions: int = 0
    edges: int = 0
    features: int = 0
    seconds: float = 0.0
    new_inputs: int = 0
    finished: bool = False
    finding: Path | None = None
    detail: str = ""
    """What the finding breaks, or the engine's last words if it failed."""
    failed: bool = False
    """The engine itself did not work."""
    _started: float = field(default=0.0, repr=False)

    @property
    def per_second(self) -> float:
        return self.executions / self.seconds if self.seconds else 0.0

    @property
    def result(self) -> str:
        if self.finding is not None:
            return "FOUND"
        return "failed" if self.failed else "ok" if self.finished else "running"

    def read(self, line: str, now: float) -> None:
        """Takes the numbers out of one line of the engine."""
        if progress := _PROGRESS.match(line):
            if not self._started:
                self._started = now
            self.seconds = now - self._started
            self.executions, self.edges = int(progress[1]), int(progress[2] or 0)
            self.features = int(progress[3] or 0)
        elif executed := _EXECUTED.match(line):
            self.executions = max(self.executions, int(executed[1]))


def atheris_problem() -> str | None:
    """Why the coverage-guided engine cannot be used here; None if it can."""
    tried = subprocess.run(
        [sys.executable, "-c", "import atheris"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else (tried.stderr.strip().splitlines() or ["no reason given"])[-1]


def run_campaign(plan: Plan, progress: Callable[[Outcome], None]) -> list[Outcome]:
    """Runs every target, also after a finding. `progress` is called whenever an outcome has changed.

    Raises `UnknownTarget` and `RecordingsMissing` before anything is run.
    """
    for name in plan.targets:
        find(name)
    corpus = seeds(plan.vectors)
    outcomes = []
    for name in plan.targets:
        outcome = Outcome(name)
        outcomes.append(outcome)
        progress(outcome)
        _run_target(plan, outcome, corpus.get(name, []), progress)
        progress(outcome)
    return outcomes


def _run_target(
    plan: Plan, outcome: Outcome, corpus: list[bytes], progress: Callable[[Outcome], None]
) -> None:
    name = outcome.target
    folder = plan.work / name.replace(":", ".")
    found, seed_folder, artifacts = folder / "found", folder / "seeds", folder / "artifacts"
    for each in (found, seed_folder, artifacts):
        each.mkdir(parents=True, exist_ok=True)
    (plan.work / ".gitignore").write_text("*\n", "utf-8")
    _empty(artifacts)
    _empty(seed_folder)
    kept = [path.read_bytes() for path in regressions(name, plan.regressions)]
    for data in (*corpus, *kept):
        (seed_folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    before = len(list(found.iterdir()))
    command = _command(plan, name, found, seed_folder, artifacts)
    exit_code, last_lines = _follow(command, plan.seconds + GRACE_SECONDS, outcome, progress)
    outcome.new_inputs = len(list(found.iterdir())) - before
    outcome.finished = True
    crashes = sorted(path for path in artifacts.iterdir() if not path.name.startswith("slow-unit"))
    if crashes:
        _keep(plan, outcome, crashes[0])
    elif exit_code:
        outcome.failed = True
        outcome.detail = f"the engine ended with exit code {exit_code}:\n" + "\n".join(last_lines)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _command(plan: Plan, name: str, found: Path, seed_folder: Path, artifacts: Path) -> list[str]:
    command = [sys.executable, "-m", "fuzz.one_target", name, f"--engine={plan.engine}"]
    command += [f"--seconds={plan.seconds}", f"--seed={plan.seed}"]
    command += [f"--found={found}", f"--seeds={seed_folder}", f"--artifacts={artifacts}"]
    return command if plan.runs is None else [*command, f"--runs={plan.runs}"]


def _environment() -> dict[str, str]:
    # A fixed hash seed: otherwise sets and dicts, and so coverage, differ from run to run.
    return {**os.environ, "PYTHONHASHSEED": "0"}


def _follow(
    command: list[str], limit: float, outcome: Outcome, progress: Callable[[Outcome], None]
) -> tuple[int, list[str]]:
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        watchdog = threading.Timer(limit, process.kill)
        watchdog.start()
        try:
            for line in process.stdout:
                lines = [*lines[1 - TAIL_LINES :], line.rstrip()]
                outcome.read(line, time.monotonic())
                progress(outcome)
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.cancel()
    return process.returncode, lines


def _keep(plan: Plan, outcome: Outcome, artifact: Path) -> None:
    """Shortens the finding and keeps it among the regressions."""
    command = [sys.executable, "-m", "fuzz.one_target", outcome.target, f"--replay={artifact}", "--shorten"]
    try:
        replayed = subprocess.run(
            command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False, timeout=60
        )
        outcome.detail = (replayed.stdout or replayed.stderr).strip()
    except subprocess.TimeoutExpired:
        outcome.detail = "the input makes the target hang"
    data = artifact.read_bytes()
    outcome.finding = regression_path(outcome.target, data, plan.regressions)
    outcome.finding.parent.mkdir(parents=True, exist_ok=True)
    outcome.finding.write_bytes(data)
