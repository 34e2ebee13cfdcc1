"""Reads the files of MaskBench and selects among them.

A file has a schema and instances, each with the verdict that is right. The data is in the folder `maskbench/data` of
the repository guidance-ai/jsonschemabench. It carries no licence, so that this repository holds none of it.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

Part: TypeAlias = Literal["all", "development", "final"]
PARTS: tuple[Part, ...] = get_args(Part)
_DEVELOPMENT = "0123"  # first digits of the SHA-1 of a file's name
_DATA = Path("maskbench", "data")


@dataclass(frozen=True, slots=True)
class SchemaCase:
    """One file.

    tests  the instances: `data`, and whether it is `valid`
    """

    name: str
    schema: Any
    tests: tuple[dict[str, Any], ...]

    @property
    def origin(self) -> str:
        """Where the schema was collected."""
        return origin_of(self.name)


def origin_of(name: str) -> str:
    """Where the schema of a file was collected.

    >>> origin_of("Github_easy---o1.json"), origin_of("BFCL_java_0.json")
    ('Github_easy', 'BFCL')
    """
    return name.partition("---" if "---" in name else "_")[0]


def is_in(name: str, part: Part) -> bool:
    """Whether a file is in the development quarter or the others.

    The three others are for final figures.
    """
    is_development = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[0] in _DEVELOPMENT
    return part == "all" or is_development == (part == "development")


def select(folder: Path, part: Part, size: int | None, seed: int) -> list[Path]:
    """The files to measure. All orders are equally likely, and a smaller sample is the start of a larger one.

    folder  the checkout, or its folder of files
    size    of the sample; None for all files
    Raises FileNotFoundError where there is none.
    """
    inside = folder / _DATA
    paths = sorted((inside if inside.is_dir() else folder).glob("*.json"))
    paths = [path for path in paths if is_in(path.name, part)]
    if not paths:
        raise FileNotFoundError(f"{folder} has no files of the {part} part")
    random.Random(seed).shuffle(paths)
    return paths[:size]


def read_case(path: Path) -> SchemaCase:
    """The contents of a file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    tests = tuple({name: test[name] for name in ("data", "valid")} for test in content["tests"])
    return SchemaCase(path.name, content["schema"], tests)
