"""What mkdocs asks us while it builds the site: the pages that are made from the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

from docs.tools.reference import CODES, error_facts, reference

OPENAPI = Path(__file__).resolve().parents[2] / "openapi.json"
PLACE = "<!-- the reference, from openapi.json -->"
_CODE_HEADING = re.compile(r"^### (?P<code>[a-z_]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The page's text with what is made from the code. Raises PluginError where a page lacks its place for it."""
    match page.file.src_uri:
        case "api.md":
            if PLACE not in markdown:
                raise PluginError(f"api.md lacks the line {PLACE}")
            return markdown.replace(PLACE, reference(json.loads(OPENAPI.read_text(encoding="utf-8"))))
        case "errors.md":
            told = [found["code"] for found in _CODE_HEADING.finditer(markdown)]
            if sorted(told) != CODES:
                raise PluginError(f"errors.md has not one section for each code: {sorted({*told} ^ {*CODES})}")
            return _CODE_HEADING.sub(lambda found: f"{found[0]}\n\n{error_facts(found['code'])}", markdown)
        case _:
            return markdown
