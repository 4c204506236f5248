"""`python -m tools.wire_vectors DIR`: replay a folder of recorded vectors and say what differs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.wire_vectors.files import BadVector, read_folder
from tools.wire_vectors.replay import replay


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.wire_vectors",
        description="Replay recorded SMP, NTF and push traffic through Tocsin's codecs and crypto.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder of *.json vector files")
    folder: Path = parser.parse_args(arguments).folder
    try:
        vectors = list(read_folder(folder))
    except BadVector as error:
        print(error, file=sys.stderr)
        return 2
    failed = 0
    for vector in vectors:
        difference = replay(vector)
        if difference is None:
            print(f"ok  {vector.name}")
        else:
            failed += 1
            print(f"FAIL {vector.name}: {' '.join(difference.split())}")
    passed = len(vectors) - failed
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
