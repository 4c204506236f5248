"""What a benchmark reads about other processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.process_tree import cpu_of

STEPS = "for _ in iter(input, ''):\n    sum(range(1000))\n    print(flush=True)"


def test_the_cpu_of_a_process_grows_with_the_least_work() -> None:
    """So that no smoke run divides by a CPU of zero."""
    command = [sys.executable, "-c", STEPS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = []
        for _ in range(20):
            process.stdin.write("work\n")
            process.stdin.flush()
            process.stdout.readline()
            seen.append(cpu_of(process.pid))
        process.stdin.write("\n")
        process.stdin.flush()
    assert seen == sorted(seen)  # what a process does is counted when it waits, so neighbours may be equal
    assert seen[-1] > seen[0] > 0
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_of(process.pid)
