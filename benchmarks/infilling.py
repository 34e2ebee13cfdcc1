"""Text infilling (the paper's section 5.3): stories with gaps, completed by each system.

    python -m benchmarks.infilling [--models stories260k ...] [--systems NAME ...] [--stories 50]

Gaps hold 10, 20 and 30 percent of the words. A system is given the first words as prompt and a regex of the rest, and
may write half as much again as the story has. Rows that are in results/infilling.json are not measured again; --again
measures them anew. Writes RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tokenizers import Tokenizer

from app.model_files import open_model_files
from benchmarks.compile import DEFAULT_SHARED, machine
from benchmarks.infilling_cases import Story, stories
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.systems.base import Wanted
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.running import Answer, NotHere, running
from benchmarks.text_metrics import bleu_4, rouge_l

RESULT = RESULTS_DIRECTORY / "infilling.json"
COMMAND = "python -m benchmarks.infilling"
MODELS = ("stories260k", "tinystories-656k")
SHARES = (0.1, 0.2, 0.3)
USUAL = ("ours, 16 beams", "ours, 1 beam", "Outlines", "guidance", "no constraint, 1 beam")
SLACK = 1.5  # of the story's own tokens
SECONDS_MAX = 60.0


def budgets(folder: str, asked: Sequence[Story]) -> list[int]:
    """How many tokens each answer may have."""
    tokenizer = Tokenizer.from_file(str(open_model_files(folder).tokenizer_file))
    return [round(SLACK * len(tokenizer.encode(story.text).ids)) + 1 for story in asked]


def answers(
    system: str, folder: str, asked: Sequence[Story], threads: int, advance: Callable[[], None]
) -> list[Answer] | None:
    """A system's answers in order; None where it cannot be started here."""
    found = []
    try:
        with running(SYSTEMS[system], folder, threads, SECONDS_MAX) as child:
            for story, budget in zip(asked, budgets(folder, asked), strict=True):
                found.append(child.ask(Wanted(story.pattern), story.prompt, budget))
                advance()
    except NotHere as error:
        print(f"{system}: {error}")
        return None
    return found


def row_of(key: dict[str, Any], asked: Sequence[Story], found: Sequence[Answer]) -> dict[str, Any]:
    """The figures of one system, model and share. A completed story is judged with its prompt, against the original."""
    texts = [f" {one.text.removeprefix(' ')}" for one in found]  # some tokenizers take the space before a text away
    whole = [story.prompt + text for story, text in zip(asked, texts, strict=True)]
    original = [[story.prompt + story.text] for story in asked]
    errors = [one.error for one in found if one.error]
    return key | {
        "stories": len(asked), "masked": statistics.fmean(story.masked for story in asked),
        "coverage": statistics.fmean(
            re.fullmatch(story.pattern, text) is not None for story, text in zip(asked, texts, strict=True)
        ),
        "rouge_l": rouge_l(whole, original), "bleu_4": bleu_4(whole, original),
        "prepare_ms": statistics.median([one.prepare_ms for one in found if not one.error] or [0.0]),
        "answer_ms": statistics.median([one.answer_ms for one in found if not one.error] or [0.0]),
        "errors": len(errors), "error": errors[0] if errors else "", "example": whole[0], "pattern": asked[0].pattern,
    }  # fmt: skip


def stored_run() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"rows": []}
    return found


def is_of(row: dict[str, Any], key: dict[str, Any]) -> bool:
    return all(row[name] == value for name, value in key.items())


def store(row: dict[str, Any], key: dict[str, Any], threads: int) -> None:
    run = stored_run()
    rows = [*(other for other in run["rows"] if not is_of(other, key)), row]
    systems = list(SYSTEMS)
    rows.sort(key=lambda one: (MODELS.index(one["model"]), one["share"], systems.index(one["system"])))
    run |= {"date": datetime.date.today().isoformat(), "machine": machine(), "command": COMMAND, "threads": threads}
    RESULT.write_text(json.dumps(run | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


def measure(args: argparse.Namespace, progress: Progress) -> None:
    path = args.shared / "data" / "stories" / "tinystories_1000.jsonl"
    for model in args.models:
        for share in SHARES:
            asked = stories(path, args.stories, share)
            for system in args.systems:
                key = {"model": model, "share": share, "system": system}
                known = [row for row in stored_run()["rows"] if is_of(row, key) and row["stories"] == len(asked)]
                if known and not args.again:
                    continue
                bar = progress.add_task(f"{model}, {share:.0%}, {system}", total=len(asked))
                folder = str(args.shared / "models" / model)
                found = answers(system, folder, asked, args.threads, lambda bar=bar: progress.advance(bar))  # type: ignore[misc]
                if found is not None:
                    store(row_of(key, asked, found), key, args.threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=USUAL)
    parser.add_argument("--stories", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure rows anew")
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("ABS_SHARED", DEFAULT_SHARED)))
    args = parser.parse_args()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        measure(args, progress)
    write_report()


if __name__ == "__main__":
    main()
