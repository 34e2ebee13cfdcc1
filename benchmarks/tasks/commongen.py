"""CommonGen and Ordered CommonGen (the paper's section 5.2). Each system writes texts for the same sets of concepts.

    python -m benchmarks.tasks.commongen [--models captions ...] [--systems NAME ...] [--sets 100]
    ABS_MODEL=FOLDER python -m benchmarks.tasks.commongen --models other [--prompt TEXT]

Each system runs in a process and an environment of its own (`benchmarks.systems`), and each answer has at most 32
tokens. Rows of results/commongen.json are not measured again, so that an interrupted run continues; --again measures
all rows again. Writes RESULTS.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from app.settings import BUILT_IN_MODEL
from benchmarks.quality.caption_scores import words
from benchmarks.runs import RESULTS_DIRECTORY, Row, RowStore, concept_sets_path, parser_of
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.process import Questioner, SystemAnswer, add_system_arguments, ask_systems, timings
from benchmarks.tasks.concept_sets import FAMILIES, OTHER_PROMPT, PROMPTS, ConceptSet, concept_sets
from benchmarks.tasks.text_metrics import bleu_4, cider, concepts_covered, leading_concepts, rouge_l

RESULT = RESULTS_DIRECTORY / "commongen.json"
MAX_TOKENS = 32
SECONDS_MAX = 20.0
OTHER = "other"
USUAL_SYSTEMS = [name for name in SYSTEMS if name not in ("outlines-core", "LM Format Enforcer, 16 beams")]
PUBLISHED = {"UniLM": "unilm", "BART": "bart", "constrained Levenshtein Transformer": "const_levt"}


def model_folder(model: str, shared: Path) -> str:
    """A model's folder: built-in, shared, or the value of ABS_MODEL."""
    if model == OTHER:
        return os.environ["ABS_MODEL"]
    return BUILT_IN_MODEL if model == "captions" else str(shared / "models" / model)


@functools.lru_cache(maxsize=1)
def scoring_model(folder: str) -> tuple[Any, Any]:
    """A model and its tokenizer, for all rows of the model."""
    return AutoModelForCausalLM.from_pretrained(folder).float().eval(), AutoTokenizer.from_pretrained(folder)


@torch.inference_mode()
def log_probs(folder: str, prompts: Sequence[str], texts: Sequence[str]) -> list[float]:
    """The log-prob of each text with its end, in nats. It follows its prompt and has the tokenizer's spelling."""
    model, tokenizer = scoring_model(folder)
    sums = []
    for prompt, text in zip(prompts, texts, strict=True):
        prompt_length = len(tokenizer(prompt).input_ids)
        ids = torch.tensor([[*tokenizer(f"{prompt} {text.removeprefix(' ')}").input_ids, tokenizer.eos_token_id]])
        by_token = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[prompt_length - 1 :]
        sums.append(float(by_token.sum()))
    return sums


def text_scores(sets: Sequence[ConceptSet], texts: Sequence[str], *, ordered: bool) -> dict[str, float]:
    """Shares of covered concepts and complete sets, and similarity to references."""
    count = leading_concepts if ordered else concepts_covered
    covered = [count(text, case.concepts, case.constraint.concepts) for case, text in zip(sets, texts, strict=True)]
    sizes = [len(case.concepts) for case in sets]
    references = [case.references for case in sets]
    return {
        "coverage": sum(covered) / sum(sizes),
        "complete": statistics.fmean(number == size for number, size in zip(covered, sizes, strict=True)),
        "rouge_l": rouge_l(texts, references), "bleu_4": bleu_4(texts, references), "cider": cider(texts, references),
        "words": statistics.fmean(len(words(text)) for text in texts),
    }  # fmt: skip


def commongen_row(
    key: Row, folder: str, sets: Sequence[ConceptSet], answers: Sequence[SystemAnswer], *, ordered: bool
) -> Row:
    """All figures of one system for one family and model."""
    texts = [answer.text.strip() for answer in answers]
    pairs = [(case.prompt, text) for case, text in zip(sets, texts, strict=True) if text]
    scores = log_probs(folder, *zip(*pairs, strict=True)) if pairs else []
    return key | text_scores(sets, texts, ordered=ordered) | timings(answers) | {
        "sets": len(sets),
        "log_prob": statistics.fmean(scores) if scores else None,
        "texts": texts,
    }  # fmt: skip


def published_scores(shared: Path) -> list[Row]:
    """The scores of published outputs of other systems, to check metrics. The outputs cover the whole split."""
    rows = []
    dev = {row["concept_set_idx"]: row for row in _read_lines(concept_sets_path(shared))}
    for name, file in PUBLISHED.items():
        outputs = _read_lines(shared / "data" / "commongen" / "baseline_outputs" / f"{file}.dev.jsonl")
        texts = [output["output"] for output in outputs]
        references = [dev[output["concept_set_idx"]]["references"] for output in outputs]
        rows.append({
            "system": name, "sets": len(outputs), "bleu_4": bleu_4(texts, references),
            "cider": cider(texts, references), "rouge_l": rouge_l(texts, references),
        })  # fmt: skip
    return rows


def _read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def sort_key(row: Row) -> tuple[int, str, str, int]:
    """The sort key of rows; models of --models other come last."""
    models = list(PROMPTS)
    at = models.index(row["model"]) if row["model"] in models else len(models)
    return at, row["model"], row["family"], list(SYSTEMS).index(row["system"])


def run(args: argparse.Namespace, questioner: Questioner) -> None:
    """Measure and store all rows."""
    rows = RowStore(RESULT, sort_key)
    for model in args.models:
        folder, prompt = model_folder(model, args.shared), args.prompt or PROMPTS.get(model, OTHER_PROMPT)
        name = Path(folder).name if model == OTHER else model
        for family in FAMILIES:
            ordered = family == FAMILIES[1]
            sets = concept_sets(concept_sets_path(args.shared), prompt, args.sets, ordered=ordered)
            for system in args.systems:
                key = {"model": name, "family": family, "system": system}
                if rows.find(key | {"sets": len(sets)}) is not None and not args.again:
                    continue
                questions = [(case.constraint, case.prompt, MAX_TOKENS) for case in sets]
                title = f"{name}, {family}, {system}"
                answers = questioner.answers(title, system, folder, questions, warm_up=questions[0])
                if answers is not None:
                    published = rows.run().get("published") or published_scores(args.shared)
                    row = commongen_row(key, folder, sets, answers, ordered=ordered)
                    fields = {"threads": args.threads, "clock": args.clock, "max_tokens": MAX_TOKENS}
                    rows.store(row, key, **fields, published=published)


def main() -> None:
    parser = parser_of(__doc__, threads=2, clock=True)
    parser.add_argument("--models", nargs="+", choices=[*PROMPTS, OTHER], default=list(PROMPTS))
    add_system_arguments(parser, USUAL_SYSTEMS)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--prompt", help="{concepts} in it stands for the concepts")
    args = parser.parse_args()
    if OTHER in args.models and not os.environ.get("ABS_MODEL"):
        parser.error(f"--models {OTHER} takes the model of ABS_MODEL, which is not set")
    ask_systems(run, args, SECONDS_MAX)


if __name__ == "__main__":
    main()
