"""Every way a compilation can fail, split by blame.

CompileError
|-- SpecError               the caller's constraint
|   |-- SpecSyntaxError       does not parse; says where and what was expected
|   |-- SpecUnsupported       parses, but holds a construct we refuse by name
|   |-- SpecUnsatisfiable     no text at all satisfies it
|   `-- SpecUnspellable       some text does, but this vocabulary has no tokens to spell it
|-- LimitExceeded           a budget of ours; names the limit and its cap
|-- EngineFailure           an outside program (MONA) is missing, failed or ran out of time
|-- VocabularyError         the tokenizer's file is not one we can read
`-- ArtefactInvalid         stored bytes are not a compiled constraint of this version
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CompileError(Exception):
    """Root of this package's errors. The message is meant for the caller to read."""


class SpecError(CompileError):
    """The caller's constraint is at fault."""


class SpecSyntaxError(SpecError):
    """The constraint does not parse.

    position  0-based character offset of the fault in the source, None where there is no offset; so line and column
    expected  what would have been accepted there, in words
    field     the path of the faulty field within the constraint ("ltlf", "propositions.dog.regex")
    """

    def __init__(
        self, message: str, *, source: str = "", position: int | None = None, expected: str = "", field: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.expected = expected
        self.field = field
        before = source[: position or 0]
        self.line = None if position is None else before.count("\n") + 1
        self.column = None if position is None else len(before) - (before.rfind("\n") + 1) + 1


class SpecUnsupported(SpecError):
    """A construct that is understood and refused. `construct` names it ("back-reference"), `field` says where it is."""

    def __init__(self, message: str, *, construct: str, position: int | None = None, field: str = "") -> None:
        super().__init__(message)
        self.construct = construct
        self.position = position
        self.field = field


class SpecUnsatisfiable(SpecError):
    """No text satisfies the constraint, whatever the vocabulary and the budget.

    conflict  conjuncts that contradict each other, each by its field and in a few words; empty where that is not known
    """

    def __init__(self, message: str, *, conflict: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.conflict = conflict


class SpecUnspellable(SpecError):
    """Texts satisfy the constraint, but the vocabulary cannot spell one. `characters` names what is missing."""

    def __init__(self, message: str, *, characters: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.characters = characters


class LimitExceeded(CompileError):
    """A compile outgrew a budget of ours. `limit` is the name of the setting, `cap` its value.

    value  what it had grown to when it was stopped, which may be far from what it needs
    """

    def __init__(self, limit: str, cap: float, value: float) -> None:
        super().__init__(f"the constraint needs more than the limit {limit} = {cap:g}")
        self.limit = limit
        self.cap = cap
        self.value = value


class CompileCancelled(CompileError):
    """The compilation was called off from outside."""


class EngineFailure(CompileError):
    """An outside program is missing, failed or ran out of time."""


class VocabularyError(CompileError):
    """The tokenizer's description cannot be read as a list of byte strings."""


class ArtefactInvalid(CompileError):
    """Stored bytes are not a compiled constraint that this version wrote."""


@contextmanager
def within(prefix: str) -> Iterator[None]:
    """Have the faults of a part of a constraint name their field from the whole constraint on."""
    try:
        yield
    except (SpecSyntaxError, SpecUnsupported) as error:
        error.field = prefix if error.field in ("", "constraint") else f"{prefix}.{error.field}"
        raise
