"""Figures as files that are the same wherever they are drawn. Needs matplotlib, which it imports where it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.places import link


def picture(path: Path, words: str, draw: Callable[[], None]) -> str:
    """A figure as the report shows it: drawn anew where there is matplotlib, else as it lies there, if it does."""
    with suppress(ImportError):
        draw()
    return f"![{words}]({link(path)})" if path.exists() else ""


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
