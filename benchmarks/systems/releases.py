"""Stores the version of each compared system and its date.

    python -m benchmarks.systems.releases INDEX

INDEX is the address of an index of packages with a JSON API: INDEX/NAME/json. The newest version
of each is stored, too. Versions are those of `requirements/*.txt`, or what is installed here. Writes
results/releases.json and RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import re
from importlib.metadata import version
from typing import Any
from urllib.request import urlopen

from benchmarks.report import write_report
from benchmarks.runs import RESULTS_DIRECTORY, Row, about, write_json
from benchmarks.systems.catalogue import REQUIREMENTS

PACKAGES = {  # by the name of the system: its package, and the environment that pins it
    "XGrammar": ("xgrammar", "xgrammar"),
    "llguidance": ("llguidance", ""),
    "outlines-core": ("outlines-core", "outlines"),
    "Outlines": ("outlines", "outlines"),
    "guidance": ("guidance", "guidance"),
    "LM Format Enforcer": ("lm-format-enforcer", "format-enforcer"),
    "constrained beams": ("transformers", "phrases"),
    "no constraint": ("transformers", ""),
    "the models of all": ("torch", ""),
}
_TIMEOUT_S = 30.0


def pinned_version(package: str, environment: str) -> str:
    """The version that an environment's file of requirements pins.

    Without a name it is that of this environment.
    """
    if not environment:
        return version(package).partition("+")[0]
    text = (REQUIREMENTS / f"{environment}.txt").read_text(encoding="utf-8")
    pin = re.search(rf"^{re.escape(package)}==(\S+)$", text, re.MULTILINE)
    if pin is None:
        raise ValueError(f"{environment}.txt does not pin {package}")
    return pin[1]


def release_dates(index: str, package: str) -> tuple[str, dict[str, str]]:
    """A package's newest version, and the date of each version."""
    with urlopen(f"{index.rstrip('/')}/{package}/json", timeout=_TIMEOUT_S) as answer:
        metadata: dict[str, Any] = json.load(answer)
    uploads = {name: [file["upload_time"] for file in files] for name, files in metadata["releases"].items()}
    dates = {name: min(times).partition("T")[0] for name, times in uploads.items() if times}
    return metadata["info"]["version"], dates


def release_row(index: str, system: str) -> Row:
    """A system's version and the newest one, each with its date."""
    package, environment = PACKAGES[system]
    used, (newest, dates) = pinned_version(package, environment), release_dates(index, package)
    return {
        "system": system, "package": package, "version": used, "released": dates[used],
        "newest": newest, "newest_released": dates[newest],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", metavar="INDEX")
    index = parser.parse_args().index
    rows = [release_row(index, system) for system in PACKAGES]
    write_json(RESULTS_DIRECTORY / "releases.json", about(arguments=False) | {"rows": rows})
    write_report()


if __name__ == "__main__":
    main()
