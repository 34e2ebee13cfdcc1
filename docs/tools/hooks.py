"""What mkdocs asks us while it builds the site: the pages that are made from the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

from docs.tools.reference import CODES, error_facts, metrics_table, reference

OPENAPI = Path(__file__).resolve().parents[2] / "openapi.json"
PLACES = {  # a line of a page, and what stands there on the site
    "<!-- the reference, from openapi.json -->": lambda: reference(json.loads(OPENAPI.read_text(encoding="utf-8"))),
    "<!-- the metrics, from app/observability/metrics.py -->": metrics_table,
}
_IN = {"api.md": 1, "operations.md": 1}  # the pages that have such a line
_ROW, _CODE = re.compile(r"^\|.*\|$", re.MULTILINE), re.compile(r"(`+)[^`]+\1")
_CODE_HEADING = re.compile(r"^### (?P<code>[a-z_]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page's text with what is made from the code. Raises PluginError where a page lacks its place for it."""
    name = page.file.src_uri
    found = [place for place in PLACES if place in markdown]
    if len(found) != _IN.get(name, 0):
        raise PluginError(f"{name} has the lines {found}, which is not what docs/tools/hooks.py expects")
    for place in found:
        markdown = markdown.replace(place, PLACES[place]())
    return _plain_bars(_with_facts(markdown) if name == "errors.md" else markdown)


def _plain_bars(markdown: str) -> str:
    """Bars in the code of tables without their backslashes, which GitHub takes away and this Markdown shows."""
    return _ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), markdown)


def _with_facts(markdown: str) -> str:
    """The page of errors with what the table of errors says of each code."""
    told = [match["code"] for match in _CODE_HEADING.finditer(markdown)]
    if sorted(told) != CODES:
        raise PluginError(f"errors.md has not one section for each code: {sorted({*told} ^ {*CODES})}")
    return _CODE_HEADING.sub(lambda match: f"{match[0]}\n\n{error_facts(match['code'])}", markdown)
