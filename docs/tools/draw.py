"""Draws the automata of the pages: `python -m docs.tools.draw` rewrites docs/images/*.svg.

Each picture shows the constraint of the block above it, compiled for the built-in model. The code that answers
GET /automata/{hash}.svg draws it, so pages, pictures and service agree.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from app.api.automaton_views import as_svg
from app.models import open_model_files
from app.settings import BUILT_IN_MODEL
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from docs.tools.pages import DOCS, blocks, pages

_PICTURE = re.compile(r"\s*!\[[^\]]*\]\((?P<path>[^)]*\.svg)\)")


def drawings() -> dict[Path, str]:
    """Path and expected content of each picture of a constraint. Raises the errors of compile_spec."""
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    pictures = {}
    for page in pages():
        for block in blocks(page):
            picture = _PICTURE.match(block.after)
            if block.language == "json" and not block.title and picture:
                path = (page.parent / picture["path"]).resolve()
                if path in pictures:
                    raise ValueError(f"{block.name}: {path.name} is the picture of another constraint")
                pictures[path] = as_svg(compile_spec(spec_from_json(json.loads(block.code)), vocabulary))
    return pictures


def main() -> None:
    """Write all pictures."""
    for path, picture in drawings().items():
        path.write_text(picture, encoding="utf-8")
        print(path.relative_to(DOCS))


if __name__ == "__main__":
    main()
