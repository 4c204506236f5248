"""`make pins`: write the hashes of all pinned packages into requirements/*.txt.

    python -m tools.pin_hashes             look up the files of each pin that has no hashes, and write their hashes
    python -m tools.pin_hashes --all       look up all pins again, which takes a quarter of an hour
    python -m tools.pin_hashes --check     exit 1 if a pin has no hash; change nothing, ask nobody

To change a version, edit it and remove its hashes.

pip installs a file only if its hash is among those of its pin, so an index, a mirror or a cache cannot slip in another.
The hashes are those of the files that pip would choose on each platform and Python version below. pip itself asks the
index that it is set up for, so no address stands here.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.progress import track

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = (
    "manylinux_2_28_x86_64",
    "manylinux_2_28_aarch64",
    "macosx_14_0_arm64",
    "macosx_14_0_x86_64",
)
OLDER_LINUX: Final = (
    "manylinux_2_17",
    "manylinux2014",
    "manylinux_2_34",
    "manylinux_2_26",
    "manylinux_2_5",
    "manylinux1",
)
_NOT_FOUND: Final = re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)==")


class Pin(NamedTuple):
    requirement: str
    """Name, version and marker, as pip reads it."""
    hashes: tuple[str, ...] = ()

    @property
    def name_and_version(self) -> str:
        return self.requirement.split(";")[0].strip()


def read_pins(text: str) -> list[Pin | str]:
    """Return the pins of a file, and its comments as they are."""
    found: list[Pin | str] = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            found.append(line)
        else:
            requirement, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
            found.append(Pin(requirement.strip(), tuple(hashes)))
    return found


def write_pins(lines: Iterable[Pin | str]) -> str:
    texts = []
    for line in lines:
        if isinstance(line, str):
            texts.append(line)
        else:
            texts.append(
                " \\\n    ".join([line.requirement, *(f"--hash=sha256:{each}" for each in line.hashes)])
            )
    return "\n".join(texts) + "\n"


def hashes_of(pins: Sequence[str], folder: Path) -> dict[str, set[str]]:
    """Ask pip which files it would install, on every platform and with every Python."""
    found: dict[str, set[str]] = defaultdict(set)
    targets = [(python, platform) for python in PYTHONS for platform in PLATFORMS]
    for python, platform in track(targets, "asking for the files of each platform"):
        found_here = _ask(pins, folder, python, platform)
        for pin, digest in found_here.items():
            found[pin].add(digest)
    for pin in pins:
        if pin not in found:  # it comes as source only
            found[pin] |= set(_ask([pin], folder, None, None).values())
    return found


def _ask(pins: Sequence[str], folder: Path, python: str | None, platform: str | None) -> dict[str, str]:
    """Return a hash by pin. Pins without a file for this platform are left out."""
    left = list(pins)
    report = folder / "report.json"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--no-deps",
        "--ignore-installed",
    ]
    command += ["--disable-pip-version-check", "--report", str(report)]
    if python is not None and platform is not None:
        command += ["--target", str(folder / "nowhere"), "--only-binary=:all:", "--python-version", python]
        command += ["--platform", platform]
        system, _, machine = platform.partition("_2_28")
        command += [
            argument
            for older in OLDER_LINUX
            if system == "manylinux"
            for argument in ("--platform", older + machine)
        ]
    while left:
        done = subprocess.run([*command, *left], capture_output=True, text=True)
        if done.returncode == 0:
            break
        missing = _NOT_FOUND.search(done.stderr)
        if missing is None:
            sys.exit(f"pip failed:\n{done.stderr}")
        left = [pin for pin in left if not _same_name(pin.split("==")[0], missing[1])]
    else:
        return {}
    files = json.loads(report.read_text("utf-8"))["install"]
    hashes = {
        canonical_name(each["metadata"]["name"]): each["download_info"]["archive_info"]["hashes"]["sha256"]
        for each in files
    }
    return {pin: hashes[canonical_name(pin.split("==")[0])] for pin in left}


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _same_name(one: str, other: str) -> bool:
    return canonical_name(one) == canonical_name(other)


def without_hashes(root: Path) -> list[str]:
    return [
        f"{path.name}: {pin.requirement}"
        for path in sorted((root / "requirements").glob("*.txt"))
        for pin in read_pins(path.read_text("utf-8"))
        if isinstance(pin, Pin) and not pin.hashes
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write the hashes of all pinned packages into requirements/*.txt."
    )
    parser.add_argument("--all", action="store_true", help="look up the pins that have hashes, too")
    parser.add_argument("--check", action="store_true", help="only look for pins without hashes")
    options = parser.parse_args()
    if options.check:
        missing = without_hashes(ROOT)
        sys.exit("\n".join([*missing, "these pins have no hashes: run `make pins`"]) if missing else 0)
    files = {
        path: read_pins(path.read_text("utf-8")) for path in sorted((ROOT / "requirements").glob("*.txt"))
    }
    wanted = {
        pin.name_and_version
        for pins in files.values()
        for pin in pins
        if isinstance(pin, Pin) and (options.all or not pin.hashes)
    }
    found: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for each in _one_version_at_a_time(wanted):
            found |= hashes_of(each, Path(folder))
    for path, pins in files.items():
        path.write_text(write_pins(_filled(pin, found) for pin in pins), "utf-8")
    print(f"{len(found)} pins, {sum(map(len, found.values()))} hashes")


def _one_version_at_a_time(pins: Iterable[str]) -> list[list[str]]:
    """Split the pins: markers may give a package two versions, for which pip cannot be asked together."""
    rounds: list[dict[str, str]] = []
    for pin in sorted(pins):
        name = canonical_name(pin.split("==")[0])
        free = next((each for each in rounds if name not in each), None)
        if free is None:
            rounds.append(free := {})
        free[name] = pin
    return [list(each.values()) for each in rounds]


def _filled(pin: Pin | str, found: dict[str, set[str]]) -> Pin | str:
    if isinstance(pin, str) or pin.name_and_version not in found:
        return pin
    return pin._replace(hashes=tuple(sorted(found[pin.name_and_version])))


if __name__ == "__main__":
    main()
