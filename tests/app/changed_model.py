"""Models that differ from the built-in one in their tokenizer or configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.settings import BUILT_IN_MODEL


@contextmanager
def changed_model(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """Yields the built-in tokenizer and configuration, then writes them to the folder."""
    names = ("tokenizer.json", "config.json")
    contents = [json.loads((Path(BUILT_IN_MODEL) / name).read_text(encoding="utf-8")) for name in names]
    yield contents
    for name, content in zip(names, contents, strict=True):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
