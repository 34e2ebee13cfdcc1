"""Figures as files that are the same wherever they are drawn. Needs matplotlib, which it imports where it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def drawn(path: Path, inches: tuple[float, float], rows: int = 1, columns: int = 1) -> Iterator[list[Any]]:
    """The panels of a figure, row by row, which is written to an SVG file at the end. Raises ImportError."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = path.stem  # the same figures give the same file
    figure, panels = pyplot.subplots(rows, columns, figsize=inches, layout="constrained", squeeze=False)
    try:
        yield list(panels.flatten())
        figure.savefig(path, metadata={"Date": None})
    finally:
        pyplot.close(figure)
