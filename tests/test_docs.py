"""Every constraint that the documents show compiles, and is the form that its heading names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from compiler.pipeline import compile_spec
from compiler.spec_json import FORMS, spec_from_json
from compiler.vocabulary import byte_vocabulary

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCKS = re.findall(
    r"^```json\n(.*?)^```", (DOCS / "constraints.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("block", BLOCKS)
def test_each_constraint_of_the_document_can_be_met(block: str) -> None:
    assert compile_spec(spec_from_json(json.loads(block)), byte_vocabulary()).tokens.min_tokens > 0


def test_each_form_has_its_section() -> None:
    titles = set(re.findall(r"^## (.+)$", (DOCS / "constraints.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(FORMS) | {"labels"} <= {name for title in titles for name in title.split(", ")}
