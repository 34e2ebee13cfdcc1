"""Audits the environment and the locks: python -m tools.audit FOLDER

Writes licences.md and sbom.json (CycloneDX) of what is installed to FOLDER, and asks the advisory service about every
version of locks/. Fails for a package under the GPL that no file of GPL names, for a known vulnerability, and where the
service cannot be reached. `make audit` has installed the two programs into FOLDER.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GPL = ("locks/fado.txt", "tests/requirements-linux.txt")  # tests compare with these; no extra installs them
_GPL = re.compile(r"\b(?:AGPL|GPL|GNU (?:Affero )?General Public)")


def licence(package: Distribution) -> str:
    """The licence that a package states. It is an expression, classifiers or a text's first line."""
    (stated,) = package.metadata.get_all("License-Expression", [""])[:1]
    classifiers = [line for line in package.metadata.get_all("Classifier", []) if line.startswith("License :: ")]
    text = package.metadata.get_all("License", [""])[0].strip().split("\n")[0][:60]
    return stated or ", ".join(line.rpartition(" :: ")[2] for line in classifiers) or text or "unknown"


def installed() -> dict[str, tuple[str, str]]:
    """Version and licence of every installed package, by lower-case name."""
    return {one.name.lower(): (one.version, licence(one)) for one in distributions()}


def undeclared_gpl() -> list[str]:
    """Installed packages under the GPL that GPL does not declare. The LGPL is permitted."""
    declared = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in GPL).lower()
    names = set(re.findall(r"^([\w.-]+)==", declared, re.MULTILINE))
    return [f"{name}: {text}" for name, (_, text) in installed().items() if _GPL.search(text) and name not in names]


def write_licences(path: Path) -> None:
    rows = [f"| {name} | {version} | {text} |" for name, (version, text) in sorted(installed().items())]
    path.write_text("\n".join(["| package | version | licence |", "|---|---|---|", *rows, ""]), encoding="utf-8")
    print(f"{path}: the licences of {len(rows)} packages")


def audit(folder: Path) -> int:
    """The exit status. What needs no network comes first."""
    programs = folder / "environment" / "bin"
    write_licences(folder / "licences.md")
    forbidden = undeclared_gpl()
    for line in forbidden:
        print(f"under the GPL, in no file of {', '.join(GPL)}: {line}", file=sys.stderr)
    bill = folder / "sbom.json"
    bom = [str(programs / "cyclonedx-py"), "environment", sys.executable, "--output-file", str(bill)]
    subprocess.run(bom, check=True)
    print(f"{bill}: a bill of materials (CycloneDX)")
    # torch.txt is without hashes, which one run cannot mix with hashes.
    unhashed = ROOT / "locks" / "torch.txt"
    hashed = [path for path in sorted((ROOT / "locks").glob("*.txt")) if path != unhashed]
    asked = 0
    for files in (hashed, [unhashed]):
        requirements = [f"--requirement={path}" for path in files]
        command = [str(programs / "pip-audit"), "--strict", "--no-deps", "--disable-pip", *requirements]
        asked = asked or subprocess.run(command, check=False).returncode
    if asked:
        print("failed: pip-audit found a vulnerability, or could not reach its service (see above)", file=sys.stderr)
    return 1 if forbidden or asked else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    raise SystemExit(audit(parser.parse_args().folder))
