"""What Tocsin is made of, and whether a known vulnerability is in it.

    python -m tools.supply_chain sbom      `make sbom`: write build/sbom.json, a CycloneDX list of all pinned packages
    python -m tools.supply_chain audit     `make audit`: ask the advisory databases about each of them

The audit uses pip-audit in an environment of its own, .venv-audit, so that its packages are not among those that run
Tocsin. It needs the network, and fails if a package cannot be looked up: an answer about most of them is no answer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import uuid
import venv
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tocsin import __version__
from tools.pin_hashes import Pin, canonical_name, read_pins

ROOT: Final = Path(__file__).resolve().parent.parent
SHIPPED: Final = {"runtime.txt": "required", "pipeline.txt": "optional"}
"""What users install, by file of pins. The others are for development only."""
AUDIT_PINS: Final = "audit.txt"


def bill_of_materials(root: Path) -> dict[str, Any]:
    """Return the CycloneDX document. The same pins give the same bytes."""
    components = list(_components(root))
    names = json.dumps([(each["name"], each["version"]) for each in components])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, names).urn,
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "tocsin",
                "version": __version__,
                "bom-ref": "tocsin",
                "licenses": [{"expression": "AGPL-3.0-or-later"}],
            }
        },
        "components": components,
        "dependencies": [{"ref": "tocsin", "dependsOn": [each["bom-ref"] for each in components]}],
    }


def _components(root: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((root / "requirements").glob("*.txt")):
        if path.name == AUDIT_PINS:
            continue
        for pin in read_pins(path.read_text("utf-8")):
            if isinstance(pin, Pin):
                yield _component(pin, SHIPPED.get(path.name, "excluded"))


def _component(pin: Pin, scope: str) -> dict[str, Any]:
    name, _, version = pin.name_and_version.partition("==")
    component: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "bom-ref": f"pkg:pypi/{canonical_name(name)}@{version}",
        "purl": f"pkg:pypi/{canonical_name(name)}@{version}",
        "scope": scope,
        "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
    }
    if licence := _licence(name, version):
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def _licence(name: str, version: str) -> str | None:
    """Return what the installed package says of its licence, if this version is installed."""
    try:
        package = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if package["Version"] != version:
        return None
    stated = package["License-Expression"] or package["License"] or ""
    first_line = stated.strip().splitlines()[0].strip() if stated.strip() else ""
    classified = [
        each.rpartition(" :: ")[2] for each in package.get_all("Classifier") or () if "License ::" in each
    ]
    return first_line or "; ".join(classified) or None


def write_bill(root: Path) -> Path:
    target = root / "build" / "sbom.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(bill_of_materials(root), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return target


def audit(root: Path, arguments: Sequence[str]) -> int:
    """Return pip-audit's exit code: 0 if every package was looked up and none has a known vulnerability."""
    environment = root / ".venv-audit"
    pip_audit = environment / "bin" / "pip-audit"
    if not pip_audit.exists():
        venv.create(environment, with_pip=True, clear=True)
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "-r", str(root / "requirements" / AUDIT_PINS)], check=True)
    files = [path for path in sorted((root / "requirements").glob("*.txt")) if path.name != AUDIT_PINS]
    pins = [argument for path in files for argument in ("--requirement", str(path))]
    command = [
        str(pip_audit),
        "--strict",
        "--disable-pip",
        "--require-hashes",
        "--progress-spinner=off",
        *pins,
    ]
    code = subprocess.run([*command, *arguments]).returncode
    if code:
        print(
            "The audit failed. If it names a vulnerability, raise that pin and run `make pins`. If it says that "
            "packages could not be audited, no advisory database was reachable: run it again with the network.",
            file=sys.stderr,
        )
    return code


def main() -> None:
    parser = argparse.ArgumentParser(
        description="List what Tocsin is made of, or look for known vulnerabilities."
    )
    parser.add_argument("action", choices=["sbom", "audit"])
    options, more = parser.parse_known_args()
    if options.action == "audit":
        sys.exit(audit(ROOT, more))
    print(write_bill(ROOT).relative_to(ROOT))


if __name__ == "__main__":
    main()
