"""CommonGen and Ordered CommonGen (the paper's section 5.2): what each system writes for the same sets of concepts.

    python -m benchmarks.commongen [--models captions ...] [--systems NAME ...] [--sets 100]
    ABS_MODEL=FOLDER python -m benchmarks.commongen --models other [--prompt TEXT]

Each system runs in a process and an environment of its own (`systems/`), is asked for one set after another, and may
write 32 tokens. Rows that are in results/commongen.json are not measured again, so that a run may be stopped and taken
up; --again measures them anew. Writes RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from transformers import AutoModelForCausalLM, AutoTokenizer

from app.settings import BUILT_IN_MODEL
from benchmarks.caption_scores import words
from benchmarks.commongen_cases import FAMILIES, OTHER_PROMPT, PROMPTS, Case, cases
from benchmarks.compile import DEFAULT_SHARED, machine
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.running import Answer, NotHere, running
from benchmarks.text_metrics import bleu_4, cider, covered, covered_in_order, rouge_l

RESULT = RESULTS_DIRECTORY / "commongen.json"
COMMAND = "python -m benchmarks.commongen"
MAX_TOKENS = 32
SECONDS_MAX = 20.0  # for one answer, its constraint's preparation among them
OTHER = "other"
USUAL = [name for name in SYSTEMS if name not in ("outlines-core", "LM Format Enforcer, 16 beams")]  # in another form
STORED = {"UniLM": "unilm", "BART": "bart", "constrained Levenshtein Transformer": "const_levt"}


def folder_of(model: str, shared: Path) -> str:
    """A model's folder: the built-in one, one of the shared, or what ABS_MODEL names."""
    if model == OTHER:
        return os.environ["ABS_MODEL"]
    return BUILT_IN_MODEL if model == "captions" else str(shared / "models" / model)


@torch.inference_mode()
def log_probs(folder: str, prompts: Sequence[str], texts: Sequence[str]) -> list[float]:
    """What the model gives each text with its end after its prompt, in nats; of whoever wrote it, as it spells it."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder).float().eval()
    found = []
    for prompt, text in zip(prompts, texts, strict=True):
        before = len(tokenizer(prompt).input_ids)
        ids = torch.tensor([[*tokenizer(f"{prompt} {text.removeprefix(' ')}").input_ids, tokenizer.eos_token_id]])
        told = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[before - 1 :]
        found.append(float(told.sum()))
    return found


def answers(
    system: str, folder: str, asked: Sequence[Case], threads: int, advance: Callable[[], None]
) -> list[Answer] | None:
    """A system's answers in order; None where it cannot be started here."""
    found = []
    try:
        with running(SYSTEMS[system], folder, threads, SECONDS_MAX) as child:
            child.ask(asked[0].wanted, asked[0].prompt, MAX_TOKENS)  # the first answer is slow for reasons of its own
            for case in asked:
                found.append(child.ask(case.wanted, case.prompt, MAX_TOKENS))
                advance()
    except NotHere as error:
        print(f"{system}: {error}")
        return None
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
    errors = [one.error for one in found if one.error]
    said = [(case.prompt, text) for case, text in zip(asked, texts, strict=True) if text]
    scores = log_probs(folder, *zip(*said, strict=True)) if said else []
    return key | judged(asked, texts, ordered=ordered) | {
        "sets": len(asked),
        "log_prob": statistics.fmean(scores) if scores else None,
        "prepare_ms": statistics.median([one.prepare_ms for one in found if not one.error] or [0.0]),
        "answer_ms": statistics.median([one.answer_ms for one in found if not one.error] or [0.0]),
        "errors": len(errors), "error": errors[0] if errors else "",
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


def stored_run() -> dict[str, Any]:
    """What is measured so far, by this run or another; two may measure different models side by side."""
    found: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"rows": []}
    return found


def is_of(row: dict[str, Any], key: dict[str, str]) -> bool:
    return all(row[name] == value for name, value in key.items())


def store(row: dict[str, Any], key: dict[str, str], args: argparse.Namespace) -> None:
    run = stored_run()
    rows = [*(other for other in run["rows"] if not is_of(other, key)), row]
    models, systems = [*PROMPTS, OTHER], list(SYSTEMS)
    rows.sort(key=lambda one: (models.index(one["model"]), one["family"], systems.index(one["system"])))
    run |= {"date": datetime.date.today().isoformat(), "machine": machine(), "command": COMMAND}
    run |= {"threads": args.threads, "max_tokens": MAX_TOKENS}
    run |= {"stored": run.get("stored") or stored_outputs(args.shared), "rows": rows}
    RESULT.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


def run(args: argparse.Namespace, progress: Progress) -> None:
    for model in args.models:
        folder, prompt = folder_of(model, args.shared), args.prompt or PROMPTS.get(model, OTHER_PROMPT)
        for family in FAMILIES:
            ordered = family == FAMILIES[1]
            asked = cases(args.shared / "data" / "commongen" / "dev.jsonl", prompt, args.sets, ordered=ordered)
            for system in args.systems:
                key = {"model": model, "family": family, "system": system}
                known = [row for row in stored_run()["rows"] if is_of(row, key) and row["sets"] == len(asked)]
                if known and not args.again:
                    continue
                bar = progress.add_task(f"{model}, {family}, {system}", total=len(asked))
                found = answers(system, folder, asked, args.threads, lambda bar=bar: progress.advance(bar))  # type: ignore[misc]
                if found is not None:
                    store(row_of(key, folder, asked, found, ordered=ordered), key, args)


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
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        run(args, progress)
    write_report()


if __name__ == "__main__":
    main()
