"""docs/tutorial.md, tried word by word as a new user would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


@pytest.mark.timeout(330)
def test_the_tutorial_works_word_by_word(tmp_path: Path) -> None:
    commands = re.findall(r"^```sh\n(.*?)^```", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    assert len(commands) >= 8
    # Jobs are numbered as in a terminal, and the first command that fails ends it.
    (tmp_path / "tutorial.sh").write_text("set -e -o pipefail\nset -m\n" + "\n".join(commands))
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }
    with (tmp_path / "output.txt").open("w+") as output:
        process = subprocess.Popen(
            ["bash", "tutorial.sh"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = process.wait(timeout=300)
        except subprocess.TimeoutExpired:
            pass  # what it said until then is shown below
        finally:
            for child in _session(process.pid):
                os.kill(child, signal.SIGKILL)
        output.seek(0)
        said = output.read()
    logs = [path.read_text()[-1500:] for path in sorted((tmp_path / "tocsin-tutorial").glob("*.log"))]
    assert code == 0, "\n".join([said[-3000:], *logs])
    assert "See you at noon" in said
    assert "The token is ACTIVE." in said
    assert '"category":"NTF_CAT_CHECK_MESSAGE"' in said
    assert "\nwrong" not in said


def _session(leader: int) -> list[int]:
    """What is left of it; jobs have process groups of their own."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(leader)], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]
