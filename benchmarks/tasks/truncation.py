"""Measures answers to a hundred patterns under short budgets.

The budgets go from the shortest possible to four times that.

    python -m benchmarks.tasks.truncation [--systems NAME ...] [--patterns 100]

Every decoder runs in a process and an environment of its own (`benchmarks.systems`), on the built-in model. `re`
decides whether a text matches. Writes results/truncation.json after each decoder, so that an interrupted run continues,
then the figure results/truncation.svg and RESULTS.md.
"""

from __future__ import annotations

import argparse
from itertools import product

from app.settings import BUILT_IN_MODEL
from benchmarks.decoding.decode import DECODERS, PROMPT, satisfies, tokens_min
from benchmarks.runs import RESULTS_DIRECTORY, Row, RowStore, parser_of
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.process import Questioner, add_system_arguments, ask_systems

RESULT = RESULTS_DIRECTORY / "truncation.json"
SECONDS_MAX = 60.0
TIMES = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # the budgets, as multiples of the shortest possible one
USUAL_SYSTEMS = (
    *DECODERS, "LM Format Enforcer", "LM Format Enforcer, 16 beams", "no constraint, 1 beam", "no constraint, 16 beams",
)  # fmt: skip
_ANIMALS, _PLACES = ("dog", "cat", "horse", "bird", "cow"), ("park", "street")
_WORDS = (
    ("snow", "hill"), ("ball", "beach"), ("guitar", "stage"), ("cake", "table"), ("boat", "lake"), ("road", "bike"),
    ("kite", "field"), ("phone", "chair"), ("train", "track"), ("pizza", "oven"),
)  # fmt: skip


def patterns() -> tuple[str, ...]:
    """Ten one-line patterns of each kind, without Unicode classes. All engines read them alike."""
    sizes = range(1, 11)
    by_kind = [
        *(rf"[A-Z][a-z]+( [a-z]+){{{count},{count + 6}}}\." for count in sizes),
        *(rf"A [a-z ]*{animal}[a-z ]*{location}[a-z ]*\." for animal, location in product(_ANIMALS, _PLACES)),
        *(rf"(The|A) (man|woman|girl|boy) [a-z ]*{first}[a-z ]* and [a-z ]*{second}\." for first, second in _WORDS),
        *(rf"[A-Z][a-z ]{{{5 * count},{5 * count + 40}}}\." for count in sizes),
        *(rf"[a-z ]*{first}[a-z ]*{second}[a-z ]*{first}\." for first, second in _WORDS),
        *(rf"(19|20)[0-9]{{2}}-(0[1-9]|1[0-2])-[0-3][0-9]: [a-z ]{{{count},{count + 30}}}\." for count in sizes),
        *(rf'\{{"{first}": "[a-z ]{{3,20}}", "{second}": "[a-z ]{{3,20}}"\}}' for first, second in _WORDS),
        *(rf"([a-z]+, ){{{count},{count + 3}}}and [a-z]+" for count in sizes),
        *(rf'\["[a-z]{{3,12}}"(, "[a-z]{{3,12}}"){{{count - 1},{count + 2}}}\]' for count in sizes),
        *(rf"{first}: [0-9]{{1,3}} (grams|cups); {second}: [0-9]{{1,3}} (grams|cups)\." for first, second in _WORDS),
    ]
    return tuple(by_kind)


def truncation_row(system: str, shortest: dict[str, int], questioner: Questioner) -> Row | None:
    """One decoder's row: satisfying and failed answers, and times, by budget."""
    budgets = [(pattern, max(tokens, int(tokens * times))) for times in TIMES for pattern, tokens in shortest.items()]
    questions = [(TextConstraint(pattern), PROMPT, budget) for pattern, budget in budgets]
    warm_up = (TextConstraint(next(iter(shortest))), PROMPT, 40)
    answers = questioner.answers(system, system, BUILT_IN_MODEL, questions, warm_up)
    if answers is None:
        return None
    results = [(pattern, budget, answer) for (pattern, budget), answer in zip(budgets, answers, strict=True)]
    by_times = []
    for at, times in enumerate(TIMES):
        part = results[at * len(shortest) : (at + 1) * len(shortest)]
        by_times.append({
            "times": times, "requests": len(part),
            "satisfied": sum(satisfies(pattern, answer.text) and not answer.error for pattern, _, answer in part),
            "failed": sum(bool(answer.error) for _, _, answer in part),
            "ms": sum(answer.ms for _, _, answer in part) / len(part),
        })  # fmt: skip
    failures = [
        {"pattern": pattern, "budget": budget, "text": answer.text, "error": answer.error}
        for pattern, budget, answer in results if not satisfies(pattern, answer.text)
    ]  # fmt: skip
    return {"system": system, "patterns": len(shortest), "by_times": by_times, "missed": failures[:3]}


def run(args: argparse.Namespace, questioner: Questioner) -> None:
    """Measure and store the rows of all systems."""
    rows = RowStore(RESULT, lambda row: (list(SYSTEMS).index(row["system"]),))
    shortest = tokens_min(patterns()[:: max(1, 100 // args.patterns)])
    for system in args.systems:
        key = {"system": system}
        if rows.find(key | {"patterns": len(shortest)}) is None or args.again:
            row = truncation_row(system, shortest, questioner)
            if row is not None:
                rows.store(row, key, threads=args.threads, clock=args.clock, tokens_min=sorted(shortest.values()))


def main() -> None:
    parser = parser_of(__doc__, shared=False, threads=2, clock=True)
    add_system_arguments(parser, USUAL_SYSTEMS)
    parser.add_argument("--patterns", type=int, default=100)
    ask_systems(run, parser.parse_args(), SECONDS_MAX)


if __name__ == "__main__":
    main()
