"""Writes the table of docs/errors.md from the error classes: `python -m docs.tools.errors_page`.

The sections of the page, which say what to change, are written by hand: one for each code, in the order of the table.
"""

from __future__ import annotations

import re

from docs.tools.pages import DOCS
from docs.tools.reference import CODES, error_facts

PAGE = DOCS / "errors.md"
BEGIN, END = "<!-- codes: written by python -m docs.tools.errors_page -->", "<!-- end of codes -->"
_SECTION = re.compile(r"^### ([a-z_]+)$", re.MULTILINE)


def page() -> str:
    """The whole page with a fresh table. Raises ValueError if the sections are not those of the codes."""
    text = PAGE.read_text(encoding="utf-8")
    before, (_, after) = text.partition(BEGIN)[0], text.partition(BEGIN)[2].split(END)
    codes = _SECTION.findall(after)
    if sorted(codes) != CODES:
        raise ValueError(f"{PAGE.name} needs one section for each code: {sorted({*codes} ^ {*CODES})}")
    rows = ["| status | `code` | what happened | further fields |", "|---|---|---|---|", *map(_row, codes)]
    return f"{before}{BEGIN}\n\n" + "\n".join(rows) + f"\n\n{END}{after}"


def _row(code: str) -> str:
    status, titles, fields = error_facts(code)
    return f"| {status} | [`{code}`](#{code}) | {titles} | {fields} |"


def main() -> None:
    """Write the table."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
