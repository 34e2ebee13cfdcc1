"""Fuzzes pushdown automata of random grammars over random vocabularies.

    python -m tests.long.pushdown_fuzz --cases 2000 --seed 1 [--answers 100]

Machines must accept what their grammars derive. Distances must equal those of a search over explicit configurations,
and satisfy Bellman's equation over all tokens on random walks. All texts of walks and all answers, from the start or
after some tokens, are derived by the grammar and end within their budgets. Checks of texts name the place from which
no byte leads to the end. Budgets below the distance that the search finds are refused. A failure prints its seed.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from compiler.errors import BudgetTooSmall, LimitExceeded, SpecUnsatisfiable, SpecUnsupported
from compiler.lifting import UNREACHABLE
from compiler.pushdown import Configurations, PushdownAutomaton, build_machine, lift_to_tokens
from compiler.text import PushdownText, answer_text, pushdown_text
from compiler.text import check_text as check
from compiler.vocab import Vocabulary
from tests.compiler.pushdown.grammars import GRAMMARS, GrammarCase
from tests.compiler.pushdown.test_distances import compared
from tests.compiler.pushdown.test_tokens import check_text, guard, random_walk
from tests.fake_models import HashModel
from tests.long.fuzz_paths import PATHS, Case, by_search
from tests.references.context_free import derives, grammar_of, mutated, random_text
from tests.references.pushdown import TooManyConfigurations, toy_vocabulary
from tests.references.random_constraints import real_vocabulary

GRAMMAR_SHARE = 0.1  # of cases with one of the grammars of the tests
REAL_SHARE = 0.1  # of cases that walk over a real vocabulary, too
CHARACTERS = "ab()é"
MEMBERS_MAX = 1 << 20  # of a state: all readings
CHARS_MAX = 12  # of texts: a very ambiguous grammar has a stack for each of exponentially many readings
MODELS: tuple[dict[str, Any], ...] = ({}, {"levels": 3}, {"zeros": 0.7}, {"spread": 200.0})
HIGHER = 3  # symbols by which the bound is raised where the search may not have climbed high enough


def random_case(draw: random.Random) -> GrammarCase:
    """A grammar of one to four rules over few characters."""
    names = "stuv"[: draw.randint(1, 4)]

    def item(depth: int) -> str:
        kind = draw.random()
        if kind < 0.55 or depth > 2:
            text = "".join(draw.choice(CHARACTERS) for _ in range(draw.randint(1, 2)))
            return "".join("\\" + char if char in "()" else char for char in text)
        if kind < 0.85:
            return f"<{draw.choice(names)}>"
        return f"(?:{sequences(depth + 1)}){draw.choice('?*+')}"

    def sequences(depth: int) -> str:
        parts = ["".join(item(depth) for _ in range(draw.randint(1, 3))) for _ in range(draw.randint(1, 3))]
        return "|".join(parts)

    grammar = grammar_of(**{name: sequences(0) for name in names})
    tokens = ["".join(draw.choice(CHARACTERS) for _ in range(draw.randint(2, 4))) for _ in range(draw.randint(0, 8))]
    return GrammarCase(grammar, CHARACTERS, tuple(tokens), deterministic=False, heights=(7, 1))


def compare_check(checks: PushdownText, text: str, derived: bool) -> None:
    """A check names where no byte leads to the end."""
    states = Configurations(checks.byte_automaton, members_max=MEMBERS_MAX, start=((checks.text_start, ()),))
    state, place = states.start, len(text)
    for offset, character in enumerate(text):
        for byte in character.encode():
            state = states.advance(state, byte)
        if states.distance_of(state) == UNREACHABLE:
            place = offset
            break
    assert check(checks, text).violated_at == (None if derived else place), text
    assert answer_text(checks, f" {text}") == (text if derived else f" {text}"), text


def run_case(seed: int, answers: int = 1) -> collections.Counter[str]:
    """The outcome of one case, with its answers and refusals. Raises AssertionError where one is wrong.

    answers  how many are wanted; generations end when there are as many, and each has several
    """
    counts = collections.Counter[str]()
    counts[_outcome(random.Random(seed), answers, counts)] += 1
    return counts


def _outcome(draw: random.Random, answers: int, counts: collections.Counter[str]) -> str:
    case = draw.choice(list(GRAMMARS.values())) if draw.random() < GRAMMAR_SHARE else random_case(draw)
    try:
        machine = build_machine(case.grammar, guard(), inline_growth_max=draw.choice((0, 5, 2_000)))
    except SpecUnsupported:
        return "left recursion is too large"
    except SpecUnsatisfiable:
        return "no text"
    except LimitExceeded as error:  # rules without left recursion may need exponentially many states
        return f"over {error.limit}"
    checks = pushdown_text(machine, True, guard())
    for _ in range(10):
        text = random_text(case.grammar, draw)[:CHARS_MAX]
        for each in (text, mutated(text, draw, case.alphabet)):
            assert machine.accepts(each.encode()) == derives(case.grammar, each), each
            compare_check(checks, each, derives(case.grammar, each))
    vocabulary = toy_vocabulary(case, draw)
    try:
        wrong = compared(machine, vocabulary, case.heights)[1]
        # The best way from a low stack may climb over the bound: then the search is wrong, and a higher bound shows it.
        assert not wrong or not compared(machine, vocabulary, (case.heights[0] + HIGHER, case.heights[1]))[1], wrong
    except TooManyConfigurations:
        return "too many configurations"
    vocabularies = [vocabulary]
    if draw.random() < REAL_SHARE:
        vocabularies += [real for real in [real_vocabulary("gpt2", 50_257, 50_256)] if real]
    if lift_to_tokens(machine, vocabulary, guard()).min_tokens == UNREACHABLE:
        return "unspellable"
    for each_vocabulary in vocabularies:
        check_text(case, machine, random_walk(machine, each_vocabulary, draw, draw.randint(0, 15)))
    automaton = lift_to_tokens(machine, vocabulary, guard())
    confirm = cache(partial(check_text, case, machine))
    for _ in range(answers):
        counts["answers"] += check_answers(automaton, vocabulary, draw, confirm)
        counts["refusals"] += check_refusal(automaton, vocabulary, draw)
        if counts["answers"] >= answers:
            break
    return "answered"


def check_refusal(automaton: PushdownAutomaton, vocabulary: Vocabulary, draw: random.Random) -> bool:
    """Ask for less than the least budget, which the search confirmed. False where there is no such budget."""
    if automaton.min_tokens == 1:
        return False
    model = HashModel(vocabulary.size, vocabulary.eos_ids, seed=0)
    budget = draw.randrange(1, automaton.min_tokens)
    try:
        by_search(Case(vocabulary, automaton, model, (0,), budget, None), draw)
    except BudgetTooSmall:
        return True
    raise AssertionError(f"{budget} tokens are not refused")


def check_answers(
    automaton: PushdownAutomaton, vocabulary: Vocabulary, draw: random.Random, confirm: Callable[[bytes], None]
) -> int:
    """Decode by one of the paths, from the start or after tokens. How many answers there are is returned."""
    states = Configurations(automaton)
    prefix, state = list[int](), states.start
    for _ in range(draw.choice((0, 0, 2, 5))):
        after = states.distances_after(state)[automaton.token_class]
        allowed = np.flatnonzero((after > 0) & (after < UNREACHABLE)).tolist()
        if allowed:
            prefix.append(draw.choice(allowed))
            state = states.advance(state, prefix[-1])
    model = HashModel(vocabulary.size, vocabulary.eos_ids, seed=draw.randrange(2**30), **draw.choice(MODELS))
    budget, start = states.distance_of(state) + draw.choice((0, 0, 1, 8)), states.stacks_of(state) if prefix else None
    paths = list(PATHS.values())
    path = draw.choices([path for path, _ in paths], [share for _, share in paths])[0]
    answers = path(Case(vocabulary, automaton, model, (0, *prefix), budget, start), draw)
    for tokens in answers:
        assert len(tokens) <= budget and tokens[-1] in vocabulary.eos_ids, tokens
        confirm(b"".join(vocabulary.tokens[token] or b"" for token in (*prefix, *tokens[:-1])))
    return len(answers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--answers", type=int, default=1, help="of each grammar")
    args = parser.parse_args()
    outcomes, start = collections.Counter[str](), time.monotonic()
    for seed in range(args.seed * 10_000_000, args.seed * 10_000_000 + args.cases):
        try:
            outcomes += run_case(seed, args.answers)
        except Exception as error:  # whatever it is, the seed must be known
            outcomes["FAILED"] += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(f"{args.cases} cases, {time.monotonic() - start:.0f} s: {dict(outcomes)}")
    return 1 if outcomes["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
