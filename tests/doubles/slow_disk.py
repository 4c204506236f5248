"""`python -m tests.doubles.slow_disk …`: `tocsin …` on a disk whose writes take up to a fifth of a second.

So a kill often comes before a write has begun, as on a busy machine.
"""

from __future__ import annotations

import random
import time
from typing import Final

from tocsin.cli.main import main
from tocsin.durable.log_files import AppendOnlyFile

SLOWEST: Final = 0.2

_append = AppendOnlyFile.append


def append_slowly(file: AppendOnlyFile, lines: bytes) -> None:
    time.sleep(random.uniform(0, SLOWEST))
    _append(file, lines)


if __name__ == "__main__":
    AppendOnlyFile.append = append_slowly  # type: ignore[method-assign, assignment]
    main()
