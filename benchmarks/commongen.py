"""CommonGen and Ordered CommonGen (the paper's section 5.2): what each system writes for the same sets of concepts.

    python -m benchmarks.commongen [--models captions ...] [--systems NAME ...] [--sets 100]
    ABS_MODEL=FOLDER python -m benchmarks.commongen --models other [--prompt TEXT]

Each system runs in a process and an environment of its own (`systems/`), is asked for one set after another, and may
write 32 tokens. Rows that are in results/commongen.json are not measured again, so that a run may be stopped and taken
up; --again measures them anew. Writes RESULTS.md.
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
from benchmarks.caption_scores import words
from benchmarks.commongen_cases import FAMILIES, OTHER_PROMPT, PROMPTS, Case, cases
from benchmarks.compile import DEFAULT_SHARED
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.rows import PeerQuestions, Row, Rows, bars, timings
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.running import Answer
from benchmarks.text_metrics import bleu_4, cider, covered, covered_in_order, rouge_l

RESULT = RESULTS_DIRECTORY / "commongen.json"
COMMAND = "python -m benchmarks.commongen"
MAX_TOKENS = 32
SECONDS_MAX = 20.0
OTHER = "other"
USUAL = [name for name in SYSTEMS if name not in ("outlines-core", "LM Format Enforcer, 16 beams")]  # in another form
STORED = {"UniLM": "unilm", "BART": "bart", "constrained Levenshtein Transformer": "const_levt"}


def folder_of(model: str, shared: Path) -> str:
    """A model's folder: the built-in one, one of the shared, or what ABS_MODEL names."""
    if model == OTHER:
        return os.environ["ABS_MODEL"]
    return BUILT_IN_MODEL if model == "captions" else str(shared / "models" / model)


@functools.lru_cache(maxsize=1)
def judge(folder: str) -> tuple[Any, Any]:
    """A model and its tokenizer, for all rows of the model."""
    return AutoModelForCausalLM.from_pretrained(folder).float().eval(), AutoTokenizer.from_pretrained(folder)


@torch.inference_mode()
def log_probs(folder: str, prompts: Sequence[str], texts: Sequence[str]) -> list[float]:
    """What the model gives each text with its end after its prompt, in nats; of whoever wrote it, as it spells it."""
    model, tokenizer = judge(folder)
    found = []
    for prompt, text in zip(prompts, texts, strict=True):
        before = len(tokenizer(prompt).input_ids)
        ids = torch.tensor([[*tokenizer(f"{prompt} {text.removeprefix(' ')}").input_ids, tokenizer.eos_token_id]])
        told = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[before - 1 :]
        found.append(float(told.sum()))
    return found


def judged(asked: Sequence[Case], texts: Sequence[str], *, ordered: bool) -> dict[str, float]:
    """Shares of concepts and of whole sets, and how near the texts are to what people wrote."""
    count = covered_in_order if ordered else covered
    held = [count(text, case.concepts, case.wanted.concepts) for case, text in zip(asked, texts, strict=True)]
    sizes = [len(case.concepts) for case in asked]
    references = [case.references for case in asked]
    return {
        "coverage": sum(held) / sum(sizes),
        "whole": statistics.fmean(one == size for one, size in zip(held, sizes, strict=True)),
        "rouge_l": rouge_l(texts, references), "bleu_4": bleu_4(texts, references), "cider": cider(texts, references),
        "words": statistics.fmean(len(words(text)) for text in texts),
    }  # fmt: skip


def row_of(
    key: dict[str, str], folder: str, asked: Sequence[Case], found: Sequence[Answer], *, ordered: bool
) -> dict[str, Any]:
    """All figures of one system for one family and model."""
    texts = [one.text.strip() for one in found]
    said = [(case.prompt, text) for case, text in zip(asked, texts, strict=True) if text]
    scores = log_probs(folder, *zip(*said, strict=True)) if said else []
    return key | judged(asked, texts, ordered=ordered) | timings(found) | {
        "sets": len(asked),
        "log_prob": statistics.fmean(scores) if scores else None,
        "texts": texts,
    }  # fmt: skip


def stored_outputs(shared: Path) -> list[dict[str, Any]]:
    """What other systems wrote for all of the split, judged by the same code: a check of it."""
    folder, rows = shared / "data" / "commongen", []
    dev = {row["concept_set_idx"]: row for row in _lines(folder / "dev.jsonl")}
    for name, file in STORED.items():
        told = _lines(folder / "baseline_outputs" / f"{file}.dev.jsonl")
        texts = [one["output"] for one in told]
        references = [dev[one["concept_set_idx"]]["references"] for one in told]
        rows.append({
            "system": name, "sets": len(told), "bleu_4": bleu_4(texts, references), "cider": cider(texts, references),
            "rouge_l": rouge_l(texts, references),
        })  # fmt: skip
    return rows


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def place(row: Row) -> tuple[int, str, str, int]:
    """Where a row stands among all: models that someone brought come last."""
    model, known = row["model"], list(PROMPTS)
    at = known.index(model) if model in known else len(known)
    return at, model, row["family"], list(SYSTEMS).index(row["system"])


def run(args: argparse.Namespace, asking: PeerQuestions) -> None:
    rows = Rows(RESULT, COMMAND, place)
    for model in args.models:
        folder, prompt = folder_of(model, args.shared), args.prompt or PROMPTS.get(model, OTHER_PROMPT)
        name = Path(folder).name if model == OTHER else model
        for family in FAMILIES:
            ordered = family == FAMILIES[1]
            asked = cases(args.shared / "data" / "commongen" / "dev.jsonl", prompt, args.sets, ordered=ordered)
            for system in args.systems:
                key = {"model": name, "family": family, "system": system}
                if rows.known(key, sets=len(asked)) and not args.again:
                    continue
                questions = [(case.wanted, case.prompt, MAX_TOKENS) for case in asked]
                title = f"{name}, {family}, {system}"
                found = asking.answers(title, system, folder, questions, first=questions[0])
                if found is not None:
                    check = rows.run().get("stored") or stored_outputs(args.shared)
                    row = row_of(key, folder, asked, found, ordered=ordered)
                    rows.store(row, key, threads=args.threads, max_tokens=MAX_TOKENS, stored=check)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=[*PROMPTS, OTHER], default=list(PROMPTS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=USUAL)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--prompt", help="with {concepts} where they are to stand")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure rows anew")
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("ABS_SHARED", DEFAULT_SHARED)))
    args = parser.parse_args()
    if OTHER in args.models and not os.environ.get("ABS_MODEL"):
        parser.error(f"--models {OTHER} is the model that ABS_MODEL names: it names none")
    with bars() as progress:
        run(args, PeerQuestions(args.threads, SECONDS_MAX, progress))
    write_report()


if __name__ == "__main__":
    main()
