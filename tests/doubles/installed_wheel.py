"""Tocsin as a user has it: the wheel of the source distribution, installed in a virtual environment of its own.

What it depends on is taken from the packages of the tests, so that nothing is downloaded; the source tree is not in
its reach.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILD = "import sys; from setuptools import build_meta; build_meta.{}(sys.argv[1])"


def build(folder: Path) -> tuple[Path, Path]:
    """The source distribution and the wheel that is made of it, in `folder`."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    _run("build_sdist", tree, folder)
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    _run("build_wheel", unpacked, folder)
    [wheel] = folder.glob("*.whl")
    return sdist, wheel


def install(wheel: Path, folder: Path) -> Path:
    """The folder of the commands of a new virtual environment with this wheel."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install = [*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    [packages] = folder.glob("lib/python3.*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def _run(what: str, tree: Path, folder: Path) -> None:
    command = [sys.executable, "-c", _BUILD.format(what), str(folder)]
    built = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
