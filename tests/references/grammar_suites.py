"""Reads and judges the suites of other systems for grammars.

`python -m tests.references.grammar_suites` writes the table. A row is a grammar with the texts that its suite accepts
and rejects. Where we decide otherwise the row says what we do, and why.
"""

from __future__ import annotations

import collections
import json
import lzma
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark
from lark.exceptions import LarkError

from compiler.errors import CompileError, LimitExceeded, SpecUnsupported
from compiler.grammars import read_grammar
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pushdown import Grammar, PushdownMachine, build_machine, lift_to_tokens
from compiler.vocab import Vocabulary
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive
from tests.fake_models import HashModel

_TOKENS_MAX = 60  # of the shortest answer
_CASES = Path(__file__).resolve().parents[1] / "cases"
SUITES = ("llama_cpp", "xgrammar", "llguidance", "lark")  # one file of rows each; the first line names its source


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """A grammar of a suite.

    refused_there  whether its home refuses the grammar
    schema         the JSON schema that describes the texts, if there is one
    refused        the name of our refusal; empty: it is compiled
    otherwise      texts on which our verdict differs, with `why`
    """

    suite: str
    name: str
    syntax: str
    grammar: str
    accepted: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    refused_there: bool = False
    schema: Any = None
    refused: str = ""
    otherwise: list[str] = field(default_factory=list)
    why: str = ""

    def compile(self) -> tuple[Grammar, PushdownMachine]:
        """Our grammar and its machine. Raises CompileError."""
        guard = ResourceGuard(DEFAULT_LIMITS)
        grammar = read_grammar(self.grammar, self.syntax, guard).grammar
        return grammar, build_machine(grammar, guard)

    def judge(self) -> str | list[str]:
        """Our refusal, or the texts on which our verdict differs."""
        try:
            _, machine = self.compile()
        except CompileError as error:
            return refusal(error)
        wrong = [text for text in self.accepted if not machine.accepts(text.encode())]
        return wrong + [text for text in self.rejected if machine.accepts(text.encode())]

    @property
    def outcome(self) -> str:
        """The column of the table."""
        if self.refused:
            return "refused by both" if self.refused_there else "refused by name"
        if self.refused_there:
            return "read here alone"
        return "other verdicts" if self.otherwise else "agree"


def earley_parser(grammar: str) -> Callable[[str], bool]:
    """Lark's own parser of a grammar. Raises ValueError where Lark refuses it."""
    try:
        lark = Lark(grammar, parser="earley", lexer="dynamic")
    except LarkError as error:
        raise ValueError(str(error)) from error

    def parses(text: str) -> bool:
        try:
            lark.parse(text)
        except LarkError:
            return False
        return True

    return parses


def refusal(error: CompileError) -> str:
    """The name that a refusal gives."""
    if isinstance(error, SpecUnsupported):
        return error.construct
    return error.limit if isinstance(error, LimitExceeded) else error.facts.code


def answers(row: SuiteRow, vocabulary: Vocabulary, seed: int, n: int = 2) -> list[str]:
    """Up to `n` answers at each of three budgets, from the least.

    None where the vocabulary spells no text, or long ones alone.
    """
    guard = ResourceGuard(DEFAULT_LIMITS)
    automaton = lift_to_tokens(row.compile()[1], vocabulary, guard)
    if automaton.min_tokens > _TOKENS_MAX:
        return []
    constraint, texts = PreparedConstraint.prepare(automaton, "cpu"), list[str]()
    for extra in (0, 1, 7):
        budget = automaton.min_tokens + extra
        model = HashModel(vocabulary.size, vocabulary.eos_ids, seed=seed + extra)
        for answer in drive(model, (1,), Sampling(constraint, SamplingOptions(budget, seed=seed, n=n))):
            assert len(answer.tokens) <= budget and answer.tokens[-1] in vocabulary.eos_ids
            texts.append(b"".join(vocabulary.tokens[token] or b"" for token in answer.tokens[:-1]).decode())
    return texts


@cache
def suite_rows(suite: str) -> tuple[SuiteRow, ...]:
    """All rows of a suite."""
    return tuple(SuiteRow(suite, **row) for row in _lines(suite)[1:])


def _lines(suite: str) -> list[dict[str, Any]]:
    content = lzma.decompress((_CASES / f"grammars_{suite}.jsonl.xz").read_bytes()).decode()
    return [json.loads(line) for line in content.split("\n") if line]


def markdown_table() -> str:
    """The table of docs/grammars.md: a row for each suite."""
    outcomes = ("agree", "refused by both", "refused by name", "other verdicts", "read here alone")
    head = ("source", "grammars", "texts", *outcomes)
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for suite in SUITES:
        rows = suite_rows(suite)
        count = collections.Counter(row.outcome for row in rows)
        texts = sum(len(row.accepted) + len(row.rejected) for row in rows)
        cells = (_lines(suite)[0]["source"], len(rows), texts, *(count[outcome] for outcome in outcomes))
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def markdown_reasons() -> str:
    """The list below the table, with names of refusals and reasons."""
    rows = [row for suite in SUITES for row in suite_rows(suite)]
    refused = collections.Counter(row.refused for row in rows if row.outcome == "refused by name")
    order = sorted(refused.items(), key=lambda each: (-each[1], each[0]))
    lines = ["- refused by name: " + ", ".join(f"`{name}` {count}" for name, count in order)]
    for outcome in ("other verdicts", "read here alone"):
        why = collections.Counter(row.why for row in rows if row.outcome == outcome)
        lines.append(f"- {outcome}: {'; '.join(f'{reason} ({count})' for reason, count in sorted(why.items()))}")
    return "\n".join(textwrap.fill(line, 100, subsequent_indent="  ", break_on_hyphens=False) for line in lines)


if __name__ == "__main__":
    print(markdown_table(), markdown_reasons(), sep="\n\n")
