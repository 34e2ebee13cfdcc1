"""mkdocs hooks that insert the generated parts into the pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

from docs.tools.reference import CODES, error_line, metrics_table, reference

OPENAPI = Path(__file__).resolve().parents[2] / "openapi.json"
GENERATED = {  # a line of a page, and the function that makes the text in its place
    "<!-- the reference, from openapi.json -->": lambda: reference(json.loads(OPENAPI.read_text(encoding="utf-8"))),
    "<!-- the metrics, from app/observability/metrics.py -->": metrics_table,
}
_LINES = {"api.md": 1, "operations.md": 1}  # the pages that have such a line
_ROW, _CODE = re.compile(r"^\|.*\|$", re.MULTILINE), re.compile(r"(`+)[^`]+\1")
_CODE_HEADING = re.compile(r"^### (?P<code>[a-z_]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page's text with its generated parts. Raises PluginError if a page lacks the line for one."""
    name = page.file.src_uri
    lines = [line for line in GENERATED if line in markdown]
    if len(lines) != _LINES.get(name, 0):
        raise PluginError(f"{name} has the generated lines {lines}, expected {_LINES.get(name, 0)}")
    for line in lines:
        markdown = markdown.replace(line, GENERATED[line]())
    return _plain_bars(_with_facts(markdown) if name == "errors.md" else markdown)


def _plain_bars(markdown: str) -> str:
    """Removes backslashes before bars in the code of tables: GitHub drops them, this Markdown shows them."""
    return _ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), markdown)


def _with_facts(markdown: str) -> str:
    """The errors page with each code's status, title and fields. They stand below the code's heading."""
    headings = [match["code"] for match in _CODE_HEADING.finditer(markdown)]
    if sorted(headings) != CODES:
        raise PluginError(f"errors.md needs one section for each code: {sorted({*headings} ^ {*CODES})}")
    return _CODE_HEADING.sub(lambda match: f"{match[0]}\n\n{error_line(match['code'])}", markdown)
