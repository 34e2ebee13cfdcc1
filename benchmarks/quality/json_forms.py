"""Measures how probable JSON answers are in each form.

    python -m benchmarks.quality.json_forms [--beams 8]

The schemas of the ablation, two models that can spell JSON, `length_penalty` 0, a budget of 200 tokens, which stops no
form. Writes results/json_forms.json and RESULTS.md.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.quality.cases import JSON, QualityCase, tasks
from benchmarks.quality.search_quality import QualityModel
from benchmarks.report import write_run
from benchmarks.runs import Row, concept_sets_path, parser_of
from compiler.spec import JSON_WHITE_SPACE
from compiler.spec.types import WhiteSpace
from decoding.options import SearchOptions
from decoding.search import generate

MODELS = ("captions", "stories260k")
MAX_TOKENS = 200
SPELLINGS: dict[str, dict[str, Any]] = {"compact": {"separators": (",", ":")}, "spaced": {}, "pretty": {"indent": 2}}
FORMS: dict[str, dict[str, str]] = {f"whitespace {name}": {"whitespace": name} for name in get_args(WhiteSpace)}
FORMS["property_order any"] = {"whitespace": JSON_WHITE_SPACE, "property_order": "any"}


def leaves(value: Any) -> Iterator[str]:
    """The strings, numbers and words of a JSON value, in its order."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def log_prob(model: QualityModel, case: QualityCase, text: str) -> float:
    """The log-prob of a text behind the prompt."""
    ids = list(model.tokenizer.encode(text, add_special_tokens=False).ids)
    return sum(model.model.score(model.prompt_ids(case), ids).log_probs)


def measure(model: QualityModel, case: QualityCase, beams: int) -> dict[str, float]:
    """The log-prob and lengths of the best answer.

    `characters` are those of the value without white space, so that they are comparable between the forms; `plain` is
    the log-prob of its strings and numbers as plain text; those of `SPELLINGS` are of the same value, in that spelling.
    """
    options = SearchOptions(MAX_TOKENS, beams=beams, length_penalty=0.0)
    best = generate(model.model, model.prompt_ids(case), model.constraint(case), options)[0]
    text = b"".join(model.files.vocabulary.tokens[token] or b"" for token in best.tokens[:-1]).decode()
    value = json.loads(text)
    words = " ".join(leaves(value))
    spelled = {name: log_prob(model, case, json.dumps(value, ensure_ascii=False, **arguments))
               for name, arguments in SPELLINGS.items()}  # fmt: skip
    return spelled | {
        "log_prob": best.log_prob, "tokens": len(best.tokens),
        "characters": len(json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
        "plain": log_prob(model, case, f" {words}"), "plain_characters": len(words),
    }  # fmt: skip


def form_rows(shared: Path, beams: int) -> list[Row]:
    """One row for each model and form. `first` counts the cases in which no form finds a more probable answer."""
    rows = []
    for name in MODELS:
        model = QualityModel(name, shared)
        cases = [task.case for task in tasks(name, concept_sets_path(shared), 1) if task.family == JSON]
        answers = {
            form: [measure(model, replace(case, constraint=case.constraint | fields), beams) for case in cases]
            for form, fields in FORMS.items()
        }
        best = [max(answer["log_prob"] for answer in column) for column in zip(*answers.values(), strict=True)]
        for form, column in answers.items():
            sums = {key: sum(answer[key] for answer in column) for key in column[0]}
            firsts = sum(answer["log_prob"] >= top - 1e-4 for answer, top in zip(column, best, strict=True))
            rows.append({
                "model": name, "form": form, "cases": len(cases), "log_prob": sums["log_prob"] / len(cases),
                "per_character": sums["log_prob"] / sums["characters"], "tokens": sums["tokens"] / len(cases),
                "plain_per_character": statistics.fmean(a["plain"] / a["plain_characters"] for a in column),
                "first": firsts, "spelled": {spelling: sums[spelling] / len(cases) for spelling in SPELLINGS},
            })  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--beams", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    write_run("json_forms", {"threads": 1, "beams": args.beams, "rows": form_rows(args.shared, args.beams)})


if __name__ == "__main__":
    main()
