"""Every constraint that the documents show compiles, is the form that its heading names, and every program runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from compiler.pipeline import compile_spec
from compiler.spec_json import FORMS, spec_from_json
from compiler.text_automaton import answer_text, check_text
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


def test_the_programs_of_the_document_on_decoding_run_one_after_the_other_and_keep_their_constraint() -> None:
    text = (DOCS / "decoding.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"decoding.md, block {number}", "exec"), names)
    said = [names["answer"], names["found"], names["tokenizer"].decode(names["answers"][0].tokens[:-1])]
    for answer in said:
        assert check_text(names["compiled"].text, answer_text(names["compiled"].text, answer)).satisfied, answer
