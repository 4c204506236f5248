"""`python -m fuzz`: fuzz the decoders and show a table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from fuzz import one_target
from fuzz.campaign import WORK, Outcome, Plan, atheris_problem, run_campaign
from fuzz.corpus import REGRESSIONS
from fuzz.recordings import VECTORS, RecordingsMissing
from fuzz.targets import TARGETS, UnknownTarget

ALL: Final = "all"
SHOWN_CHARACTERS: Final = 600
LINE_EVERY_SECONDS: Final = 10.0
"""Where output is no terminal: a line of progress this often."""

_COLOURS: Final = {"ok": "green", "FOUND": "bold red", "failed": "bold red", "running": "cyan"}


def main(arguments: list[str] | None = None) -> int:
    """0: nothing found. 1: a finding, or an engine that failed. 2: it could not start. 130: interrupted."""
    options = _parser().parse_args(arguments)
    console = Console()
    if options.list:
        console.print(_list())
        return 0
    if options.replay is not None:
        return one_target.replay(options.target, options.replay, shorten=False)
    plan = Plan(
        targets=list(TARGETS) if options.target == ALL else [options.target],
        seconds=options.seconds,
        runs=options.runs,
        seed=options.seed,
        engine=_engine(options.engine, console),
        work=options.work,
        regressions=options.regressions,
        vectors=options.vectors,
    )
    try:
        outcomes = _run(plan, console)
    except KeyboardInterrupt:
        console.print("Interrupted. The corpora and regressions contain the findings so far.")
        return 130
    except (UnknownTarget, RecordingsMissing) as problem:
        console.print(f"[bold red]The fuzzer cannot start:[/] {escape(str(problem))}", highlight=False)
        return 2
    _explain(outcomes, plan, console)
    return 1 if any(outcome.result != "ok" for outcome in outcomes) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz",
        description="Fuzz the decoders, one target after the other. Exit code 1 if anything was found.",
    )
    parser.add_argument(
        "--target", default=ALL, help="a name from --list, package.module:function, or all (default)"
    )
    parser.add_argument("--seconds", type=int, default=60, help="time for each target (default 60)")
    parser.add_argument("--runs", type=int, help="inputs for each target, seeds included (default no limit)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices (default 1)")
    parser.add_argument("--list", action="store_true", help="show the targets and end")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input of --target and end")
    parser.add_argument(
        "--engine",
        choices=("auto", "atheris", "mutation"),
        default="auto",
        help="atheris: guided by coverage; mutation: without it; auto (default): atheris where it can be imported",
    )
    parser.add_argument("--work", type=Path, default=WORK, help="folder for growing corpora (default .fuzz)")
    parser.add_argument(
        "--regressions", type=Path, default=REGRESSIONS, help="folder for findings (default fuzz/regressions)"
    )
    parser.add_argument(
        "--vectors", type=Path, default=VECTORS, help="recorded traffic (default tests/wire_vectors)"
    )
    return parser


def _engine(wanted: str, console: Console) -> str:
    if wanted != "auto":
        return wanted
    problem = atheris_problem()
    if problem is None:
        return "atheris"
    console.print(
        Panel(
            f"atheris cannot be imported here ({escape(problem)}).\n"
            "The fallback engine only mutates the seeds, [bold]without coverage guidance[/]: it finds shallow bugs.\n"
            "For a real campaign use Linux on x86-64 and a Python for which requirements/dev.txt pins atheris.",
            title="NOT COVERAGE-GUIDED",
            style="bold yellow",
        )
    )
    return "mutation"


def _list() -> Table:
    table = Table("target", "what it covers", "longest input")
    for target in TARGETS.values():
        summary = (target.check.__doc__ or "").strip().splitlines()[0]
        table.add_row(target.name, summary, f"{target.longest:,} bytes")
    return table


def _run(plan: Plan, console: Console) -> list[Outcome]:
    outcomes: dict[str, Outcome] = {}

    def note(outcome: Outcome) -> None:
        outcomes[outcome.target] = outcome

    if console.is_terminal:
        with Live(console=console, get_renderable=lambda: _table(outcomes, plan), refresh_per_second=4):
            return run_campaign(plan, note)
    finished = run_campaign(plan, _line_printer(console, plan))
    console.print(_table({outcome.target: outcome for outcome in finished}, plan))
    return finished


def _line_printer(console: Console, plan: Plan) -> Callable[[Outcome], None]:
    """Progress for logs and pipes: a line at the start and the end of a target, and now and then between."""
    last = 0.0
    started: set[str] = set()

    def note(outcome: Outcome) -> None:
        nonlocal last
        now = time.monotonic()
        first = outcome.target not in started
        if first or outcome.finished or now - last >= LINE_EVERY_SECONDS:
            started.add(outcome.target)
            last = now
            place = f"{len(started)}/{len(plan.targets)}"
            console.print(
                f"{place} {outcome.target}: {outcome.result}, {outcome.executions:,} executions, "
                f"{outcome.edges} edges, {outcome.features} features",
                highlight=False,
                soft_wrap=True,
            )

    return note


def _table(outcomes: dict[str, Outcome], plan: Plan) -> Table:
    limit = f"{plan.seconds} s" if plan.runs is None else f"{plan.runs:,} runs, at most {plan.seconds} s"
    title = f"fuzzing with {plan.engine}, seed {plan.seed}, {limit} for each target"
    table = Table(title=title, padding=(0, 0, 0, 1))
    table.add_column("target", no_wrap=True)
    for name in ("executions", "exec/s", "edges", "features", "new inputs"):
        table.add_column(name, justify="right")
    table.add_column("result")
    for name in plan.targets:
        outcome = outcomes.get(name)
        if outcome is None:
            table.add_row(name, style="dim")
            continue
        table.add_row(
            name,
            f"{outcome.executions:,}",
            f"{outcome.per_second:,.0f}",
            f"{outcome.edges:,}",
            f"{outcome.features:,}",
            f"{outcome.new_inputs:,}" if outcome.finished else "…",
            f"[{_COLOURS[outcome.result]}]{outcome.result}[/]",
        )
    return table


def _explain(outcomes: list[Outcome], plan: Plan, console: Console) -> None:
    for outcome in outcomes:
        if outcome.result == "ok":
            continue
        title = f"{outcome.target}: {outcome.result}"
        detail = outcome.detail if len(outcome.detail) <= SHOWN_CHARACTERS else _middle_cut(outcome.detail)
        console.print(f"\n[bold red]{title}[/]\n{escape(detail)}", highlight=False, soft_wrap=True)
        if outcome.finding is not None:
            console.print(
                f"The input is kept: {outcome.finding}\n"
                f"Replay it: python -m fuzz --target {outcome.target} --replay {outcome.finding}",
                highlight=False,
                soft_wrap=True,
            )


def _middle_cut(text: str) -> str:
    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]} … {text[-half:]}"


if __name__ == "__main__":
    sys.exit(main())
