"""The tables of cases in tests/cases, as parsed TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "cases"


def table(name: str) -> dict[str, Any]:
    """All of one table, by the name of its file without suffix."""
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
