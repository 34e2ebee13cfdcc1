"""Text infilling (the paper's section 5.3): systems complete stories with gaps.

    python -m benchmarks.tasks.infilling [--models stories260k ...] [--systems NAME ...] [--stories 50]

The gaps cover 10, 20 and 30 percent of the words. A system gets the first words as prompt and a regex of the rest, with
a budget of half as much again as the story's tokens. Rows of results/infilling.json are not measured again; --again
measures all rows again. Writes RESULTS.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Sequence

from tokenizers import Tokenizer

from app.models import open_model_files
from benchmarks.runs import RESULTS_DIRECTORY, Row, RowStore, parser_of
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.process import Questioner, SystemAnswer, add_system_arguments, ask_systems, timings
from benchmarks.tasks.gapped_stories import Story, gapped_stories
from benchmarks.tasks.text_metrics import bleu_4, rouge_l

RESULT = RESULTS_DIRECTORY / "infilling.json"
MODELS = ("stories260k", "tinystories-656k")
SHARES = (0.1, 0.2, 0.3)
USUAL_SYSTEMS = ("ours, 16 beams", "ours, 1 beam", "Outlines", "guidance", "no constraint, 1 beam")
BUDGET_FACTOR = 1.5  # of the tokens of the story's text
SECONDS_MAX = 60.0


def budgets(folder: str, stories: Sequence[Story]) -> list[int]:
    """The budget of each answer in tokens."""
    tokenizer = Tokenizer.from_file(str(open_model_files(folder).tokenizer_file))
    return [round(BUDGET_FACTOR * len(tokenizer.encode(story.text).ids)) + 1 for story in stories]


def infilling_row(key: Row, stories: Sequence[Story], answers: Sequence[SystemAnswer]) -> Row:
    """The figures of one system, model and share. The completed story is scored against the original."""
    texts = [f" {answer.text.removeprefix(' ')}" for answer in answers]  # some tokenizers drop the leading space
    completed = [story.prompt + text for story, text in zip(stories, texts, strict=True)]
    originals = [[story.prompt + story.text] for story in stories]
    return key | timings(answers) | {
        "stories": len(stories), "masked": statistics.fmean(story.masked for story in stories),
        "coverage": statistics.fmean(
            re.fullmatch(story.pattern, text) is not None for story, text in zip(stories, texts, strict=True)
        ),
        "rouge_l": rouge_l(completed, originals), "bleu_4": bleu_4(completed, originals),
        "example": completed[0], "pattern": stories[0].pattern,
    }  # fmt: skip


def sort_key(row: Row) -> tuple[int, float, int]:
    """The order of the rows."""
    return MODELS.index(row["model"]), row["share"], list(SYSTEMS).index(row["system"])


def run(args: argparse.Namespace, questioner: Questioner) -> None:
    """Measure and store all rows."""
    rows = RowStore(RESULT, sort_key)
    path = args.shared / "data" / "stories" / "tinystories_1000.jsonl"
    for model in args.models:
        folder = str(args.shared / "models" / model)
        for share in SHARES:
            stories = gapped_stories(path, args.stories, share)
            questions = [
                (TextConstraint(story.pattern), story.prompt, budget)
                for story, budget in zip(stories, budgets(folder, stories), strict=True)
            ]
            for system in args.systems:
                key = {"model": model, "share": share, "system": system}
                if rows.find(key | {"stories": len(stories)}) is not None and not args.again:
                    continue
                answers = questioner.answers(f"{model}, {share:.0%}, {system}", system, folder, questions)
                if answers is not None:
                    rows.store(infilling_row(key, stories, answers), key, threads=args.threads, clock=args.clock)


def main() -> None:
    parser = parser_of(__doc__, threads=2, clock=True)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    add_system_arguments(parser, USUAL_SYSTEMS)
    parser.add_argument("--stories", type=int, default=50)
    ask_systems(run, parser.parse_args(), SECONDS_MAX)


if __name__ == "__main__":
    main()
