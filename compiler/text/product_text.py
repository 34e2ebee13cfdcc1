"""A constraint over texts whose parts are decided one by one.

One automaton for all of them would be too large.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar, Literal, TypeAlias

from compiler.lifting import TokenAutomaton
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.products import DistinctAutomaton, Formula, LazyProduct, PartStart, fold, lazy_product, parts_of
from compiler.pushdown import NOWHERE, PushdownAutomaton
from compiler.text.distinct_text import DistinctText
from compiler.text.pushdown_text import PushdownText
from compiler.text.text_automaton import TextAutomaton

PartText: TypeAlias = TextAutomaton | PushdownText | DistinctText


@dataclass(frozen=True, eq=False, kw_only=True)
class ProductText:
    """A formula over other constraints.

    strips_space  whether one leading space is no part of an answer
    Raises ValueError where the formula does not name each part.
    """

    kind: ClassVar[Literal["product"]] = "product"

    parts: tuple[PartText, ...]
    formula: Formula
    strips_space: bool
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        if sorted(set(parts_of(self.formula))) != list(range(len(self.parts))):
            raise ValueError("the formula names each part")

    @property
    def letter_names(self) -> tuple[tuple[str, ...] | None, ...]:
        """Those of all parts, one after another."""
        return tuple(chain.from_iterable(part.letter_names for part in self.parts))

    @functools.cached_property
    def byte_automaton(self) -> LazyProduct:
        """The same constraint over single bytes, from the start of a text. It is built on first use."""
        parts = [part.byte_automaton for part in self.parts]
        return lazy_product(parts, self.formula, ResourceGuard(self.limits), tuple(map(_text_start, self.parts)))

    @property
    def existing_byte_automaton(self) -> LazyProduct | None:
        """The byte automaton if it has been built. None before its first use."""
        return vars(self).get("byte_automaton")

    def display_state_of(self, control: int) -> int | None:
        """The state that is shown for a state of the first part. None after the end."""
        return None if control == NOWHERE else self.parts[0].display_state_of(control)

    def reader(self) -> ProductReader:
        """Reads a text from its beginning."""
        return ProductReader(self)

    def violation(self, text: str) -> int:
        """The offset after which parts cannot be satisfied any more. It must not satisfy as it is."""
        return self.fold(lambda part: self.parts[part].violation(text), min, max)

    def fold(
        self, leaf: Callable[[int], int], both: Callable[[int, int], int], either: Callable[[int, int], int]
    ) -> int:
        """The value of the formula, from the values of its parts."""
        return fold(self.formula, leaf, both, either)

    def with_byte_automata(self, tokens: LazyProduct) -> ProductText:
        """The same text with the parts of a product over bytes.

        They need not be lifted again.
        """
        parts = list[PartText]()
        for part, lifted in zip(self.parts, tokens.parts, strict=False):  # what is behind reads a space before the text
            if isinstance(part, TextAutomaton):
                assert isinstance(lifted, TokenAutomaton)
                parts.append(replace(part, lifted=lifted))
            elif isinstance(part, DistinctText):
                assert isinstance(lifted, DistinctAutomaton)
                parts.append(replace(part, lifted=lifted))
            else:
                assert isinstance(lifted, PushdownAutomaton)
                parts.append(replace(part, lifted=lifted))
        return replace(self, parts=tuple(parts))


def _text_start(part: PartText) -> PartStart:
    """The state of a lifted part in which a text begins."""
    if isinstance(part, PushdownText):
        return ((part.text_start, ()),)
    if isinstance(part, DistinctText):
        return part.reader().stacks
    return part.text_start * part.letters.states + part.letters.start


class ProductReader:
    """Reads bytes through all parts."""

    def __init__(self, text: ProductText) -> None:
        self._text, self._readers = text, [part.reader() for part in text.parts]
        self.accepting = False

    @property
    def state(self) -> int:
        """That of the first part."""
        return self._readers[0].state

    def read(self, data: bytes) -> None:
        """Read bytes. The letters are those of the parts."""
        for reader in self._readers:
            reader.read(data)

    def end(self) -> list[int]:
        """Read the end of the text."""
        holds = [reader.end() is not None and reader.accepting for reader in self._readers]
        self.accepting = bool(self._text.fold(holds.__getitem__, operator.and_, operator.or_))
        return []
