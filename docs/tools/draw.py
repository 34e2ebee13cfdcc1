"""Draws the automata of the pages: `python -m docs.tools.draw` writes docs/images/*.svg anew.

What is drawn is the constraint of the block above a picture, compiled for the built-in model, by the code that
answers GET /automata/{hash}.svg. So the pictures cannot say anything else than the pages and the service do.
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
    """Every picture that the pages show of a constraint, and what it has to be. Raises what compile_spec raises."""
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    found = {}
    for page in pages():
        for block in blocks(page):
            picture = _PICTURE.match(block.after)
            if block.language == "json" and not block.title and picture:
                path = (page.parent / picture["path"]).resolve()
                if path in found:
                    raise ValueError(f"{block.name}: {path.name} is another constraint's picture")
                found[path] = as_svg(compile_spec(spec_from_json(json.loads(block.code)), vocabulary))
    return found


def main() -> None:
    """Write all of them."""
    for path, picture in drawings().items():
        path.write_text(picture, encoding="utf-8")
        print(path.relative_to(DOCS))


if __name__ == "__main__":
    main()
