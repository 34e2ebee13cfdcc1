"""The result of a compilation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.grammars import GrammarWarning
from compiler.lifting import TokenAutomaton
from compiler.products import LazyProduct
from compiler.pushdown import PushdownAutomaton
from compiler.spec import Spec, TokenPart, all_parts
from compiler.text import AnyText, AnyTokens, CapturedSpan, CaptureReader, ProductText, TextAutomaton, WrittenText


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CompiledConstraint:
    """A constraint, compiled for one vocabulary.

    text             the automaton over texts
    tokens           the automaton over the vocabulary's ids, of the same kind
    state_distances  per state of text.display_dfa the fewest tokens to acceptance, None where it is dead; empty where
                     the states are without end
    vocabulary       fingerprint of the vocabulary
    not_enforced     JSON pointers of schema keywords that have no effect
    approximate      JSON pointers of schema keywords that have another one: the caller allows it, or `warnings` say it
    warnings         what is probably a mistake in a grammar, and what of a schema is never written
    captures         what finds the captures of each sequence that has some
    """

    spec: Spec
    text: AnyText
    tokens: AnyTokens
    state_distances: tuple[int | None, ...]
    vocabulary: str
    not_enforced: tuple[str, ...] = ()
    approximate: tuple[str, ...] = ()
    warnings: tuple[GrammarWarning, ...] = ()
    captures: tuple[CaptureReader, ...] = ()

    def captured(self, text: WrittenText) -> tuple[CapturedSpan, ...] | None:
        """The captures in a finished text, left to right. None where to find them takes too many steps."""
        found = [reader.captures(text, self.text.limits) for reader in self.captures]
        return None if None in found else tuple(each for captures in found for each in captures or ())

    @property
    def named_tokens(self) -> tuple[str, ...]:
        """The names of tokens that the sequences with captures name."""
        parts = (part for reader in self.captures for part in all_parts(reader.sequence.root))
        return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, TokenPart)))

    def text_over_bytes(self) -> AnyText:
        """The automaton over texts, which need not be lifted to bytes. The vocabulary must be single bytes."""
        text, tokens = self.text, self.tokens
        if isinstance(text, ProductText):
            assert isinstance(tokens, LazyProduct)
            return text.with_byte_automata(tokens)
        if isinstance(text, TextAutomaton):
            assert isinstance(tokens, TokenAutomaton)
            return replace(text, lifted=tokens)
        assert isinstance(tokens, PushdownAutomaton)
        return replace(text, lifted=tokens)
