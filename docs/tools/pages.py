"""Reads the pages: code blocks, their headings and captions, and tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*) ?(?P<options>[^\n]*)\n(?P<code>.*?)^(?P=fence)$", re.M | re.S)
_ROW = re.compile(r"^\|(?P<cells>.*)\|\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of a page.

    page   the page's path below docs, as constraints/ltlf.md
    line   the block's first line, from 1
    title  the title="..." of its fence, or empty; "answer" marks the output of the block before it
    after  the page's text behind it
    """

    page: str
    line: int
    language: str
    title: str
    code: str
    after: str

    @property
    def name(self) -> str:
        """Name of the block in tests."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page, with the block before it, if any. Cells are source text, with `\\|` read as |."""

    page: str
    line: int
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    above: Block | None


def pages() -> list[Path]:
    """All pages, in the order of their names."""
    return sorted(DOCS.rglob("*.md"))


def blocks(page: Path) -> list[Block]:
    """The blocks of code of a page, from top to bottom."""
    text, name = page.read_text(encoding="utf-8"), os.path.relpath(page, DOCS)
    result = []
    for match in _FENCE.finditer(text):
        title = re.search(r'title="([^"]*)"', match["options"])
        line = text.count("\n", 0, match.start()) + 1
        label = title[1] if title else ""
        result.append(Block(name, line, match["language"], label, match["code"], text[match.end() :]))
    return result


def tables(page: Path) -> Iterator[Table]:
    """The tables of a page, from top to bottom."""
    lines, page_blocks = page.read_text(encoding="utf-8").splitlines(), blocks(page)
    name, number = page.relative_to(DOCS).as_posix(), 0
    while number < len(lines):
        end = number
        while end < len(lines) and _ROW.match(lines[end]):
            end += 1
        if end - number > 2:
            header, _, *rows = (_cells(line) for line in lines[number:end])
            previous_blocks = [block for block in page_blocks if block.line <= number]
            yield Table(name, number + 1, header, tuple(rows), previous_blocks[-1] if previous_blocks else None)
        number = max(end, number + 1)


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip()[1:-1]
    return tuple(cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inner))


def code_of(cell: str) -> str:
    """The code of a cell; empty if the cell has none."""
    match = re.fullmatch(r"(`+)(.*?)\1", cell)
    if match is None:
        return ""
    inner = match[2]
    return inner[1:-1] if len(match[1]) > 1 and inner[:1] == inner[-1:] == " " else inner
