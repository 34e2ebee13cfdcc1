"""Every way a compilation can fail, split by blame.

CompileError
|-- SpecError               the caller's constraint
|   |-- SpecSyntaxError       does not parse; says where and what was expected
|   |-- SpecUnsupported       parses, but holds a construct we refuse by name
|   |-- SpecUnsatisfiable     no text at all satisfies it
|   |   `-- PolicyUnsatisfiable   no next event keeps the rules of a policy
|   `-- SpecUnspellable       some text does, but this vocabulary has no tokens to spell it
|-- LimitExceeded           a budget of ours; names the limit and its cap
|-- BudgetTooSmall        the constraint needs more tokens than the budget; says how many
|-- Undecided             a search within limits did not decide whether the budget is enough
|-- CompileCancelled      the compilation was cancelled from outside
|-- EngineFailure           an outside program (MONA) is missing, failed or ran out of time
|-- VocabularyError         the tokenizer's file is not one we can read
`-- ArtefactInvalid         stored bytes are not a compiled constraint of this version
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from typing import TypeAlias

Edit: TypeAlias = dict[str, object]
"""An operation of JSON Patch (RFC 6902). Its paths start at the constraint, and at the request after a #."""
_SHOWN_CHARS_MAX = 40  # of a name in a message


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """How a service reports the errors of a class. A class has its own facts, or those of its base.

    status         HTTP status
    code           stable identifier of the error
    title          the error in a few words, without its particulars
    fields         attributes of the error that the answer carries
    outcome        how a job that ends in it is counted: unsat, limit, infeasible, timeout, cancelled, refused or error
    private        the message may name the operator's files: it goes to the log, not to the caller
    retry_after_s  seconds after which to try again, if the error itself does not say
    cache_s        for how many seconds a failed compilation is not tried again; None for not at all
    explanation_optional
                   an answer is sent without its explanation if this error prevents the explanation
    """

    status: int
    code: str
    title: str
    fields: tuple[str, ...] = ()
    _: KW_ONLY
    outcome: str = "error"
    private: bool = False
    retry_after_s: int | None = None
    cache_s: float | None = None
    explanation_optional: bool = False

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later. False if its own content is at fault."""
        return self.status not in (400, 405, 413, 415, 422, 431)


INTERNAL = ErrorFacts(500, "internal", "Internal error", private=True)
CANCELLED = ErrorFacts(
    503, "cancelled", "The request was cancelled", ("retry_after_s",), outcome="cancelled", retry_after_s=1
)
UNSATISFIABLE = ErrorFacts(
    422, "constraint_unsatisfiable", "The constraint cannot be met", outcome="unsat", cache_s=86_400.0
)


class CompileError(Exception):
    """Root of this package's errors. The message is meant for the caller to read."""

    facts = INTERNAL


class SpecError(CompileError):
    """The caller's constraint is at fault."""


class SpecSyntaxError(SpecError):
    """The constraint does not parse.

    position  0-based character offset of the fault in the source, None where there is no offset; so line and column
    expected  what would have been accepted there, in words
    field     the path of the faulty field within the constraint ("ltlf", "propositions.dog.regex")
    suggestion   edits of the constraint that were probably meant, or none
    replacement  characters of the faulty string to replace: begin, end, and what was probably meant
    """

    facts = ErrorFacts(
        422,
        "constraint_syntax",
        "The constraint does not parse",
        ("position", "line", "column", "expected", "field", "suggestion"),
        outcome="refused",
    )

    def __init__(
        self, message: str, *, source: str = "", position: int | None = None, expected: str = "", field: str = "",
        suggestion: Sequence[Edit] = (), replacement: tuple[int, int, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.expected = expected
        self.field = field
        self.suggestion = tuple(suggestion)
        self.replacement = replacement
        self.line, self.column = _place(source, position)


def _place(source: str, position: int | None) -> tuple[int | None, int | None]:
    """Line and column of a position. They count from 1, as editors do."""
    if position is None:
        return None, None
    before = source[:position]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def shown_name(name: str) -> str:
    """A caller's name for a message. Long ones are cut."""
    return name if len(name) <= _SHOWN_CHARS_MAX else name[:_SHOWN_CHARS_MAX] + "…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message on an unknown name. It is empty where no known name is similar."""
    similar = get_close_matches(name[:_SHOWN_CHARS_MAX], sorted(known), n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def nearest(name: str, known: Iterable[str], similarity: float = 0.9) -> str | None:
    """The known name that is most like another one. None where none is as similar, from 0 to 1."""
    return next(iter(get_close_matches(name[:_SHOWN_CHARS_MAX], sorted(known), n=1, cutoff=similarity)), None)


def require(holds: bool, message: str, field: str, expected: str = "") -> None:
    """Raise SpecSyntaxError with the message unless the condition holds."""
    if not holds:
        raise SpecSyntaxError(message, field=field, expected=expected)


class SpecUnsupported(SpecError):
    """A construct that is understood and refused. `construct` names it ("back-reference"), `field` says where it is.

    line, column  of the position, where the source may have several lines
    """

    facts = ErrorFacts(
        422, "unsupported", "A construct that is not supported", ("construct", "position", "line", "column", "field"),
        outcome="refused",
    )

    def __init__(
        self, message: str, *, construct: str, position: int | None = None, field: str = "", source: str = ""
    ) -> None:
        super().__init__(message)
        self.construct = construct
        self.position = position
        self.field = field
        self.line, self.column = _place(source, position if source else None)


class SpecUnsatisfiable(SpecError):
    """No text satisfies the constraint, whatever the vocabulary and the budget.

    conflict  conjuncts that contradict each other, each by its field and in a few words; empty where that is not known
    """

    facts = replace(UNSATISFIABLE, fields=("conflict", "field"))  # a request of several constraints has a `field`

    def __init__(self, message: str, *, conflict: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.conflict = conflict


class PolicyUnsatisfiable(SpecUnsatisfiable):
    """No next event of a request keeps the rules of its policy.

    conflict  rules that cannot be met together any more, or those that the event has to meet
    past      the fewest events that lead to the conflict, as text; empty if there is none in the rules alone
    """

    facts = replace(UNSATISFIABLE, fields=("conflict", "past"))

    def __init__(self, message: str, *, conflict: tuple[str, ...] = (), past: tuple[str, ...] = ()) -> None:
        super().__init__(message, conflict=conflict)
        self.past = past


class SpecUnspellable(SpecError):
    """Texts satisfy the constraint, but the vocabulary cannot spell one. `characters` lists the missing ones."""

    facts = replace(UNSATISFIABLE, fields=("characters",))

    def __init__(self, message: str, *, characters: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.characters = characters


class LimitExceeded(CompileError):
    """A compile outgrew a budget of ours. `limit` is the name of the setting, `cap` its value.

    value  what it had grown to when it was stopped, which may be far from what it needs
    """

    facts = ErrorFacts(
        422,
        "constraint_too_large",
        "The constraint is over a limit",
        ("limit", "cap"),
        outcome="limit",
        cache_s=600.0,
        explanation_optional=True,
    )

    def __init__(self, limit: str, cap: float, value: float, message: str = "") -> None:
        super().__init__(message or f"the constraint needs more than the limit {limit} = {cap:g}")
        self.limit = limit
        self.cap = cap
        self.value = value


class BudgetTooSmall(CompileError):
    """The constraint needs more tokens than the budget. `min_tokens` is None if no budget is enough."""

    facts = ErrorFacts(
        422,
        "budget_too_small",
        "The constraint needs more tokens than max_tokens",
        ("min_tokens", "max_tokens", "min_tokens_at_least"),
        outcome="infeasible",
    )

    def __init__(self, min_tokens: int | None, max_tokens: int, min_tokens_at_least: int | None = None) -> None:
        least = min_tokens_at_least or min_tokens
        needs = "cannot be met in any number of tokens" if least is None else f"needs at least {least} tokens"
        super().__init__(f"the constraint {needs}, max_tokens is {max_tokens}")
        self.min_tokens = min_tokens
        self.max_tokens = max_tokens
        self.min_tokens_at_least = None if min_tokens_at_least == min_tokens else min_tokens_at_least


class Undecided(CompileError):
    """A search within limits did not decide whether the budget is enough.

    min_tokens           a budget that is known to be enough; None if none is known
    min_tokens_at_least  no smaller budget is enough
    max_tokens           the budget; None if the constraint alone was compiled
    """

    facts = ErrorFacts(
        422,
        "undecided",
        "It was not decided whether max_tokens is enough",
        ("min_tokens", "max_tokens", "min_tokens_at_least"),
        outcome="limit",
        cache_s=600.0,
        explanation_optional=True,
    )

    def __init__(self, min_tokens: int | None, min_tokens_at_least: int, max_tokens: int | None = None) -> None:
        known = "no budget is known to be enough" if min_tokens is None else f"{min_tokens} tokens are enough"
        given = "" if max_tokens is None else f", max_tokens is {max_tokens}"
        super().__init__(
            f"the constraint is too large for one automaton: it needs at least {min_tokens_at_least} tokens, and "
            f"{known}{given}"
        )
        self.min_tokens = min_tokens
        self.min_tokens_at_least = min_tokens_at_least
        self.max_tokens = max_tokens


class CompileCancelled(CompileError):
    """The compilation was cancelled from outside."""

    facts = CANCELLED


class EngineFailure(CompileError):
    """An outside program is missing, failed or ran out of time."""


class VocabularyError(CompileError):
    """The tokenizer's description cannot be read as a list of byte strings."""


class ArtefactInvalid(CompileError):
    """Stored bytes are not a compiled constraint that this version wrote."""


class OtherVocabulary(ArtefactInvalid):
    """A stored constraint was compiled for another vocabulary."""
