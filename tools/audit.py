"""Audits the environment and the locks.

    python -m tools.audit FOLDER [OPTION OF PIP-AUDIT]...

Writes licences.md and sbom.json (CycloneDX) of what is installed to FOLDER, and asks an advisory service about every
version of locks/. `make audit` has installed the two programs into FOLDER. The exit status is

0  no package is under the GPL that no file of GPL names, and no vulnerability is known;
1  there is such a package, a vulnerability, or a version that the service does not know;
3  the licences are in order, and the service could not be reached.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GPL = ("locks/fado.txt", "tests/requirements-linux.txt")  # tests compare with these; no extra installs them
FAILED, UNREACHED = 1, 3
_BLOCKED = "network may be blocking this service"  # pip-audit has no exit status of its own for this
_GPL = re.compile(r"\b(?:AGPL|GPL|GNU (?:Affero )?General Public)")


class ServiceUnreached(Exception):
    """The advisory service gave no answer about any package."""


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
    where = ", ".join(GPL)
    packages = [name for name, (_, text) in installed().items() if _GPL.search(text) and name not in names]
    return [f"{name} is under the GPL, and not in {where}" for name in packages]


def write_licences(path: Path) -> None:
    rows = [f"| {name} | {version} | {text} |" for name, (version, text) in sorted(installed().items())]
    path.write_text("\n".join(["| package | version | licence |", "|---|---|---|", *rows, ""]), encoding="utf-8")
    print(f"{path}: the licences of {len(rows)} packages")


def vulnerabilities(packages: list[dict[str, Any]]) -> list[str]:
    """The findings among pip-audit's answers. Raises ServiceUnreached where no package has one."""
    skipped = [package for package in packages if "skip_reason" in package]
    if len(skipped) == len(packages):
        raise ServiceUnreached(skipped[0]["skip_reason"] if skipped else "the report is empty")
    known = [(package, found) for package in packages for found in package.get("vulns", ())]
    findings = [f"not audited: {package['skip_reason']}" for package in skipped] + [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'none'}"
        for package, found in known
    ]
    return sorted(set(findings))


def ask(program: Path, files: list[Path], options: list[str]) -> list[dict[str, Any]]:
    """What the service answers about each package of some files. Raises ServiceUnreached.

    Each file has a run, which takes neither two versions of a package nor hashes for some packages alone.
    """
    command = [str(program), "--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json", "--desc=off"]
    packages: list[dict[str, Any]] = []
    for path in files:
        words = [*command, f"--requirement={path}", *options]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if _BLOCKED in done.stderr:
            raise ServiceUnreached(done.stderr.strip().rpartition("\n")[2])
        if not done.stdout.startswith("{"):
            raise SystemExit(f"{path}: {done.stderr}")
        packages += json.loads(done.stdout)["dependencies"]
    return packages


def audit(folder: Path, options: list[str]) -> int:
    """The exit status."""
    programs = folder / "environment" / "bin"
    write_licences(folder / "licences.md")
    bill = folder / "sbom.json"
    bom = [str(programs / "cyclonedx-py"), "environment", sys.executable, "--output-file", str(bill)]
    subprocess.run(bom, check=True)
    print(f"{bill}: a bill of materials (CycloneDX)")
    findings = undeclared_gpl()
    status = 0
    try:
        findings += vulnerabilities(ask(programs / "pip-audit", sorted((ROOT / "locks").glob("*.txt")), options))
    except ServiceUnreached as error:
        print(f"vulnerabilities: not checked, for the advisory service cannot be reached ({error})", file=sys.stderr)
        status = UNREACHED
    for line in findings:
        print(line, file=sys.stderr)
    return FAILED if findings else status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    given, rest = parser.parse_known_args()
    raise SystemExit(audit(given.folder, rest))
