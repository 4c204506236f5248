"""Make .venv, or bring it up to date, from the pins in requirements/. `make` runs this before anything else.

    python3 tools/setup_venv.py            make or repair .venv, then leave a stamp in it
    python3 tools/setup_venv.py --check    exit 0 if the stamp fits, 1 if not; change nothing

The stamp is a hash over what the set-up depends on: the pins, pyproject.toml, this file, the Python version
and the place of the checkout (an editable install points there). File times play no part, so a new checkout
over an old .venv is seen for what it is.

An interrupted set-up is recognised by a note in .venv.setup, written before the first change and emptied
after the last; the next run then starts from an empty .venv. The same file is the lock that keeps two runs
apart.

The tests of the page need a browser. If there is none and this runs as root where apt is, Debian's Chromium is
installed; whatever goes wrong with that is said and does no harm. TOCSIN_NO_BROWSER=1 leaves it out, TOCSIN_BROWSER
names the browser to use, TOCSIN_REQUIRE_BROWSER=1 lets those tests fail instead of being skipped.

Standard library only. An old Python 3 must be able to parse this file far enough to print the sentence below.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this file is what older Pythons get to see
    sys.exit(
        "Tocsin needs Python 3.11 or newer; this is %d.%d (%s). Install a newer one, or name it: "  # noqa: UP031
        "make test PYTHON=/path/to/python3.11" % (sys.version_info[0], sys.version_info[1], sys.executable)
    )

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
# Installed in this order: with the build backend in place, installing the package itself fetches nothing.
PIN_FILES = (
    "requirements/build.txt",
    "requirements/runtime.txt",
    "requirements/pipeline.txt",
    "requirements/dev.txt",
    "requirements/docs.txt",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
BROWSER_VARIABLE = "TOCSIN_BROWSER"
NO_BROWSER_VARIABLE = "TOCSIN_NO_BROWSER"
REQUIRE_BROWSER_VARIABLE = "TOCSIN_REQUIRE_BROWSER"
ROOM = 2 * 1024**3
"""Bytes that the packages and what pip unpacks beside them need."""
STAMP_INPUTS = (*PIN_FILES, "pyproject.toml", "tools/setup_venv.py")


def stamp_for(root: Path, python_version: tuple[int, int, int]) -> str:
    """The stamp of a complete set-up of the checkout at `root`."""
    digest = hashlib.sha256()
    for part in (str(root), "{}.{}.{}".format(*python_version)):
        digest.update(part.encode() + b"\0")
    for name in STAMP_INPUTS:
        content = (root / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def stamp_file(root: Path) -> Path:
    return root / ".venv" / "tocsin-setup-stamp"


def is_current(root: Path, python_version: tuple[int, int, int]) -> bool:
    """Return whether .venv was set up completely from the present pins, by this Python version."""
    try:
        found = stamp_file(root).read_text()
    except OSError:
        return False
    return found == stamp_for(root, python_version) and os.access(venv_python(root), os.X_OK)


def venv_python(root: Path) -> Path:
    return root / ".venv" / "bin" / "python"


def say(text: str) -> None:
    print("set-up: " + text, file=sys.stderr, flush=True)


def fail(text: str) -> NoReturn:
    say(text)
    sys.exit(1)


def why_not_reusable(root: Path, note: str) -> str:
    """Return why .venv must be created again; empty if it can be updated in place."""
    if not (root / ".venv").exists():
        return "there is none yet"
    if note:
        return "the last set-up was interrupted"
    probe = [str(venv_python(root)), "-I", "-c", "import sys, pip; print('%d.%d' % sys.version_info[:2])"]
    try:
        found = subprocess.run(probe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "its Python or pip does not run"
    wanted = "{}.{}".format(*sys.version_info[:2])
    library = root / ".venv" / "lib" / ("python" + found)
    if found != wanted or not library.is_dir():
        return f"it was made by another Python than {wanted}"
    return ""


def refuse_without_ensurepip() -> None:
    try:
        import ensurepip  # noqa: F401 - Debian packages it apart from Python
    except ImportError:
        fail(
            "this Python cannot make virtual environments because the module ensurepip is missing: "
            "install it (Debian, Ubuntu: apt install python3-venv) and run the same command again."
        )


def refuse_without_room(root: Path) -> None:
    free = shutil.disk_usage(root).free
    if free < ROOM:
        fail(
            f"{free // 1024**2} MB are free where .venv goes, and its packages need {ROOM // 1024**2} MB: free some "
            "space, or move the checkout, and run the same command again."
        )


def make_venv(root: Path) -> None:
    # The base interpreter, because `python3` may be the one inside the .venv that is replaced here.
    base = getattr(sys, "_base_executable", sys.executable)
    run([base, "-m", "venv", "--clear", str(root / ".venv")], root)


def run(command: list[str], root: Path) -> None:
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_REQUIRE_VIRTUALENV": "0"}
    environment.pop("PYTHONHOME", None)
    environment.pop("PYTHONPATH", None)
    finished = subprocess.run(command, cwd=root, env=environment)
    if finished.returncode < 0:
        raise KeyboardInterrupt  # ended by a signal: leave the note, so that the next run starts afresh
    if finished.returncode != 0:
        raise subprocess.CalledProcessError(finished.returncode, command)


def install(root: Path) -> None:
    """Install exactly the pins and, without any dependency resolution, the package in editable mode."""
    pip = [str(venv_python(root)), "-m", "pip", "--quiet", "--no-input"]
    for group in (PIN_FILES[:1], PIN_FILES[1:]):
        pins = [argument for name in group for argument in ("--requirement", name)]
        # A pin that comes as source only (http_ece) is built with the pinned backend.
        run([*pip, "install", "--no-deps", "--no-build-isolation", "--require-hashes", *pins], root)
    run([*pip, "install", "--no-deps", "--no-build-isolation", "--editable", "."], root)
    run([*pip, "check"], root)  # --no-deps above: a forgotten transitive pin is reported here
    # Programs start faster, also where the environment keeps Python from writing bytecode.
    run([str(venv_python(root)), "-m", "compileall", "-q", "src", "tests", "tools"], root)


def find_browser() -> "str | None":
    """The Chrome or Chromium that tests of the page use."""
    if os.environ.get(NO_BROWSER_VARIABLE):
        return None
    named = os.environ.get(BROWSER_VARIABLE)
    found = [shutil.which(name) for name in ([named] if named else BROWSERS)]
    return next((path for path in found if path), None)


def install_browser() -> None:
    """Debian's Chromium, if there is no other, and if we may. Nothing else depends on it."""
    if os.environ.get(NO_BROWSER_VARIABLE) or find_browser():
        return
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        say("there is no Chrome or Chromium: tests of the page are skipped (Debian: apt install chromium)")
        return
    say("installing Chromium for the tests of the page (TOCSIN_NO_BROWSER=1 leaves it out)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = [apt, "install", "--yes", "--no-install-recommends", "--quiet", "chromium"]
    # The lists of packages may be missing or too old, which only the second attempt makes sure of.
    for command in (install, [apt, "update", "--quiet"], install):
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if command is install and done.returncode == 0:
            return
    last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    say(f"Chromium could not be installed ({last[0]}): tests of the page are skipped")


def set_up(root: Path) -> None:
    started = time.monotonic()
    version = sys.version_info[:3]
    with (root / ".venv.setup").open("a+") as note_file:
        fcntl.flock(note_file, fcntl.LOCK_EX)
        if is_current(root, version):
            say("another run has just finished it")
            return
        note_file.seek(0)
        reason = why_not_reusable(root, note_file.read())
        if reason:
            refuse_without_ensurepip()
            refuse_without_room(root)
        note_file.truncate(0)
        note_file.write("set-up in progress\n")
        note_file.flush()
        stamp_file(root).unlink(missing_ok=True)
        if reason:
            say("making .venv with Python {}.{}.{} ({})".format(*version, reason))
            make_venv(root)
        else:
            say("pins, pyproject.toml or Python have changed: bringing .venv up to date")
        say("installing the pinned packages, and tocsin in editable mode")
        try:
            install(root)
        except subprocess.CalledProcessError:
            # pip changes nothing when it cannot resolve or download, so what is there may stay.
            note_file.truncate(0)
            fail(
                "pip failed, see above. Is a package index reachable? If it speaks of hashes, the index serves other "
                "files than those we tested, or this machine needs files that `make pins` does not look up. If it "
                "asked for a compiler, there is no ready-made package for this Python or machine: try Python 3.11 to "
                "3.13 (make test PYTHON=python3.12), or install gcc. Run the same command again to retry."
            )
        stamp_file(root).write_text(stamp_for(root, version))
        note_file.truncate(0)
    say(f"done in {time.monotonic() - started:.1f} s")


def main() -> None:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: setup_venv.py [--check]")
    current = is_current(ROOT, sys.version_info[:3])
    # Tests that must not be skipped need a browser also where .venv was kept and the machine is new.
    browser_is_missing = bool(os.environ.get(REQUIRE_BROWSER_VARIABLE)) and find_browser() is None
    if current and not browser_is_missing:
        say(".venv fits the pins, nothing to do")
        return
    if sys.argv[1:]:
        sys.exit(1)
    try:
        if not current:
            set_up(ROOT)
        install_browser()
    except KeyboardInterrupt:
        say("interrupted; the next run starts it again")
        sys.exit(130)
    except subprocess.CalledProcessError as error:
        fail(f"could not make .venv: {error.cmd[0]} exited with {error.returncode}")
    except OSError as error:
        fail(
            f"could not write {error.filename or 'into .venv'}: {error.strerror}. Make room, or make it writable."
        )


if __name__ == "__main__":
    main()
