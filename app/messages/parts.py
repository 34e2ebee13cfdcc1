"""What jobs, news and results are made of, as JSON too. Nothing is coerced, nothing unknown passed over."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import ConfigDict, JsonValue
from pydantic.dataclasses import dataclass

Priority = Literal["interactive", "batch"]
Algorithm = Literal["abs", "banked", "sample"]
Reason = Literal["violates", "over_budget", "incomplete", "no_bytes"]  # why a row may not write a token
ALGORITHM_DEFAULT: Final = "banked"
CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


@dataclass(frozen=True, config=CONFIG)
class GenerateOptions:
    """How to generate.

    max_tokens                                        the budget, in tokens with the end of the text
    n                                                 how many answers, at most
    scope                                             what satisfies: the "answer" alone, or the "full" text, from the
                                                      prompt's first character on
    beams                                             of the algorithms with beams
    alpha_min, gamma, rank_by                         of "abs"
    length_penalty                                    of "banked"
    temperature, top_p, seed                          of the algorithm "sample"; the seed is None for the others
    """

    max_tokens: int
    n: int = 1
    algorithm: Algorithm = ALGORITHM_DEFAULT
    scope: Literal["answer", "full"] = "answer"
    beams: int = 16
    alpha_min: float = 0.5
    gamma: float = 1.0
    rank_by: Literal["score", "log_prob"] = "log_prob"
    length_penalty: float = 0.5
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None

    @property
    def rows(self) -> int:
        """The texts that are written side by side, at most."""
        return self.n if self.algorithm == "sample" else self.beams


@dataclass(frozen=True, config=CONFIG)
class StepRow:
    """One text as far as a step has written it.

    text      all that the model wrote, a leading space among it that is no part of the answer
    parent    the row that it continues, in the step before
    state     of the constraint's automaton after the text, as GET /automata shows it
    distance  fewest tokens to the end, exact, EOS among them; 0 where the text is finished
    alpha     the push-up at the state before the last token
    """

    text: str
    parent: int
    state: int
    distance: int
    alpha: float
    score: float
    log_prob: float
    finished: bool


@dataclass(frozen=True, config=CONFIG)
class RejectedToken:
    """A token among the most probable after a row that the constraint rejects.

    parent    the row, in the step before; of the first step 0, the start
    text      what the token writes; nothing where it ends the text
    log_prob  of the token alone, by the model
    distance  fewest tokens from there to the end; null where no continuation satisfies
    reason    "violates": no continuation satisfies; "over_budget": the end is further away than the budget;
              "incomplete": the text may not end yet; "no_bytes": the token writes nothing
    """

    parent: int
    text: str
    log_prob: float
    distance: int | None
    reason: Reason


@dataclass(frozen=True, config=CONFIG)
class Word:
    """One step of the word trace: a unit of the text, the propositions that hold there, the state after it."""

    text: str
    propositions: tuple[str, ...]
    state: int


@dataclass(frozen=True, config=CONFIG)
class CheckedConjunct:
    """A conjunct of a constraint, checked by itself.

    path         where it stands in the constraint: `all.0.keywords.1`
    summary      the conjunct in a few words
    constraint   the conjunct, as it could be asked for
    violated_at  as for the whole
    """

    path: str
    summary: str
    constraint: dict[str, JsonValue]
    satisfied: bool
    violated_at: int | None


@dataclass(frozen=True, config=CONFIG)
class TokenStep:
    """One token of an answer.

    state     of the constraint's automaton after the token, as GET /automata shows it
    distance  fewest tokens to the end after the token, exact, EOS among them
    alpha     the push-up at the state before the token
    propositions  the propositions of each step of the word trace that this token completes
    """

    token: int
    text: str
    state: int
    distance: int
    alpha: float
    log_prob: float
    score: float
    propositions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, config=CONFIG)
class Choice:
    """One answer, re-checked on its text. `proven_gap` as in `api.generation.Choice`."""

    text: str
    finish_reason: str
    log_prob: float
    score: float
    satisfied: bool
    words: tuple[Word, ...]
    tokens: int
    trace: tuple[TokenStep, ...] | None
    proven_gap: float | None = None


@dataclass(frozen=True, config=CONFIG)
class LabelStep:
    """One label of a decoded sequence.

    state     of the constraint's automaton after the label, as GET /automata shows it
    distance  fewest further labels to acceptance; 0 where the sequence may end
    propositions  the propositions that hold at the label
    log_prob  the matrix's own, as it was counted: -10000 at the least
    """

    label: str
    state: int
    distance: int
    propositions: tuple[str, ...]
    log_prob: float
