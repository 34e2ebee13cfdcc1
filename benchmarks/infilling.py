"""Text infilling (the paper's section 5.3): stories with gaps, completed by each system.

    python -m benchmarks.infilling [--models stories260k ...] [--systems NAME ...] [--stories 50]

Gaps hold 10, 20 and 30 percent of the words. A system is given the first words as prompt and a regex of the rest, and
may write half as much again as the story has. Rows that are in results/infilling.json are not measured again; --again
measures them anew. Writes RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from app.models import open_model_files
from benchmarks.compile import DEFAULT_SHARED
from benchmarks.infilling_cases import Story, stories
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.rows import PeerQuestions, Row, Rows, bars, timings
from benchmarks.systems.base import Wanted
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.running import Answer
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


def row_of(key: dict[str, Any], asked: Sequence[Story], found: Sequence[Answer]) -> dict[str, Any]:
    """The figures of one system, model and share. A completed story is judged with its prompt, against the original."""
    texts = [f" {one.text.removeprefix(' ')}" for one in found]  # some tokenizers take the space before a text away
    whole = [story.prompt + text for story, text in zip(asked, texts, strict=True)]
    original = [[story.prompt + story.text] for story in asked]
    return key | timings(found) | {
        "stories": len(asked), "masked": statistics.fmean(story.masked for story in asked),
        "coverage": statistics.fmean(
            re.fullmatch(story.pattern, text) is not None for story, text in zip(asked, texts, strict=True)
        ),
        "rouge_l": rouge_l(whole, original), "bleu_4": bleu_4(whole, original),
        "example": whole[0], "pattern": asked[0].pattern,
    }  # fmt: skip


def place(row: Row) -> tuple[int, float, int]:
    """Where a row stands among all."""
    return MODELS.index(row["model"]), row["share"], list(SYSTEMS).index(row["system"])


def measure(args: argparse.Namespace, asking: PeerQuestions) -> None:
    rows = Rows(RESULT, COMMAND, place)
    path = args.shared / "data" / "stories" / "tinystories_1000.jsonl"
    for model in args.models:
        folder = str(args.shared / "models" / model)
        for share in SHARES:
            asked = stories(path, args.stories, share)
            room = budgets(folder, asked)
            questions = [(Wanted(one.pattern), one.prompt, budget) for one, budget in zip(asked, room, strict=True)]
            for system in args.systems:
                key = {"model": model, "share": share, "system": system}
                if rows.known(key, stories=len(asked)) and not args.again:
                    continue
                found = asking.answers(f"{model}, {share:.0%}, {system}", system, folder, questions)
                if found is not None:
                    rows.store(row_of(key, asked, found), key, threads=args.threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=USUAL)
    parser.add_argument("--stories", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure rows anew")
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("ABS_SHARED", DEFAULT_SHARED)))
    args = parser.parse_args()
    with bars() as progress:
        measure(args, PeerQuestions(args.threads, SECONDS_MAX, progress))
    write_report()


if __name__ == "__main__":
    main()
