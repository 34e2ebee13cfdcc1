"""The tables of cases in tests/cases, as parsed TOML."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "cases"


@cache
def table(name: str) -> dict[str, Any]:
    """All of one table, by the name of its file without suffix."""
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def rows(name: str, test: str) -> list[Any]:
    """The cases of one test in the table of its folder."""
    cases: list[Any] = table(f"{name}_rows")[test]
    return cases
