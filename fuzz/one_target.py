"""Fuzzes one target in a separate process: `atheris.Fuzz()` does not return, and a native crash ends it.

Started by `python -m fuzz`, which reads its progress lines. Both engines write them in the form of libFuzzer.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fuzz.contract import Target

FOUND: Final = 77
"""Exit code for a finding, the one libFuzzer uses."""
UNIT_SECONDS: Final = 10
"""One input may take this long before it counts as a finding (a hang)."""
MEMORY_MB: Final = 2048


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.one_target", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--engine", choices=("atheris", "mutation"), default="atheris")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, help="folder for new inputs of the corpus")
    parser.add_argument("--seeds", type=Path, help="folder of seeds, only read")
    parser.add_argument("--artifacts", type=Path, help="folder for the finding")
    parser.add_argument("--replay", type=Path, help="run this one input and say what happens")
    parser.add_argument("--shorten", action="store_true", help="with --replay: shorten the file in place")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        return replay(options.target, options.replay, shorten=options.shorten)
    if options.engine == "mutation":
        return run_mutation(options)
    return run_atheris(options)


def load(name: str) -> Target:
    """Imports the targets, and with them the code under test: only now, so that it can be instrumented."""
    find: Callable[[str], Target] = importlib.import_module("fuzz.targets").find
    return find(name)


def replay(name: str, path: Path, *, shorten: bool) -> int:
    from fuzz import mutation

    target, data = load(name), path.read_bytes()
    if shorten:
        data = mutation.shorten(target, data)
        path.write_bytes(data)
    try:
        target(data)
    except AssertionError as broken:
        print(broken)
        return FOUND
    print(f"target {name}: {path} is no longer a finding")
    return 0


def run_atheris(options: argparse.Namespace) -> int:
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["tocsin"]):
        target = load(options.target)
    flags = [
        f"-seed={options.seed}",
        f"-max_total_time={options.seconds}",
        f"-max_len={target.longest}",
        f"-timeout={UNIT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={options.artifacts}/",
        "-print_final_stats=1",
    ]
    if options.runs is not None:
        flags.append(f"-runs={options.runs}")
    atheris.Setup([sys.argv[0], *flags, str(options.found), str(options.seeds)], target)
    atheris.Fuzz()
    return 0


def run_mutation(options: argparse.Namespace) -> int:
    from fuzz import mutation

    target = load(options.target)
    corpus = [path.read_bytes() for path in sorted(options.seeds.iterdir())]
    started = time.monotonic()

    def report(done: int, word: str = "pulse") -> None:
        speed = int(done / max(time.monotonic() - started, 0.001))
        print(f"#{done}\t{word}  cov: 0 ft: 0 corp: {len(corpus)}/0b exec/s: {speed}", flush=True)

    try:
        done = mutation.fuzz(
            target, corpus, runs=options.runs, seconds=options.seconds, seed=options.seed, report=report
        )
    except mutation.Finding as finding:
        name = f"crash-{hashlib.sha256(finding.data).hexdigest()[:16]}"
        (options.artifacts / name).write_bytes(finding.data)
        print(finding, flush=True)
        return FOUND
    report(done, "DONE")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
