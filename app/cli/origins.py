"""Finds packages of other origin with the names of ours."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

NAMES = ("abs_client", "app", "compiler", "decoding")
DISTRIBUTION = "abs-server"
ROOT = Path(__file__).resolve().parents[2]  # of this process's own packages


def shadowing() -> Iterator[str]:
    """Packages that are imported here in place of this service's."""
    for name in NAMES:
        found = _origin(name, sys.path)
        if found is not None and found.parent != ROOT:
            yield f"{name} is imported from {found.parent}, not from {ROOT}"


def rivals() -> Iterator[str]:
    """Packages in other folders, and distributions that own the same names."""
    for entry in dict.fromkeys((str(Path.cwd()), *map(str, sys.path))):
        for name in NAMES:
            found = _origin(name, [entry])
            if found is not None and found.parent != ROOT:
                yield f"a package {name} of another origin is in {found.parent}"
    owners = importlib.metadata.packages_distributions()
    for name in NAMES:
        others = sorted({*owners.get(name, ())} - {DISTRIBUTION})
        if others:
            yield f"the package {name} is also installed by {', '.join(others)}"


def _origin(name: str, path: list[str]) -> Path | None:
    """The folder or file of the package that a path leads to. None without any."""
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.origin is None:  # a folder without __init__.py comes after all packages
        return None
    origin = Path(spec.origin).resolve()
    return origin.parent if origin.name == "__init__.py" else origin
