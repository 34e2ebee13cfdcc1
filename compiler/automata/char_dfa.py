"""Automata over characters: a DFA whose symbols are classes of Unicode scalar values, and the Boolean operations.

A symbol is a minterm, so a complement here is a complement within valid UTF-8: no word of symbols spells bytes that are
not a text. Knows nothing of patterns, formulas or tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.automata import products
from compiler.automata.character_sets import NO_MINTERM, Minterms, minterms
from compiler.automata.dfa import Dfa, complement
from compiler.automata.interning import unique_rows
from compiler.limits import ResourceGuard


@dataclass(frozen=True, slots=True, eq=False)
class CharDfa:
    """A language of texts: a DFA whose symbol i is the minterm i. Raises ValueError where their numbers differ."""

    dfa: Dfa
    minterms: Minterms

    def __post_init__(self) -> None:
        if self.dfa.symbols != self.minterms.count:
            raise ValueError("a DFA over minterms has one symbol for each")

    def accepts(self, text: str) -> bool:
        """True when the text is in the language; a text with half a surrogate pair never is."""
        word = self.minterms.word(text)
        return NO_MINTERM not in word and self.dfa.accepts(word)


def everything() -> CharDfa:
    """All texts."""
    zero = np.zeros(1, dtype=np.int32)
    return CharDfa(Dfa(zero, zero.reshape(1, 1), np.ones(1, dtype=bool)), minterms(()))


def char_complement(part: CharDfa) -> CharDfa:
    """Exactly the texts that `part` rejects."""
    return CharDfa(complement(part.dfa), part.minterms)


def char_union(parts: Sequence[CharDfa], guard: ResourceGuard) -> CharDfa:
    """The texts in any part, minimal. Raises as `char_intersection` does."""
    return char_complement(char_intersection([char_complement(part) for part in parts], guard))


def char_intersection(parts: Sequence[CharDfa], guard: ResourceGuard) -> CharDfa:
    """The texts in every part, minimal; all texts where there is no part.

    Only pairs that are reachable, and alive in each part, are built.
    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max` or `compile_s_max`.
    """
    if len(parts) < 2:
        return parts[0] if parts else everything()
    # The parts read different partitions of the characters: they are rewritten over the coarsest common one.
    shared, members = common_minterms([part.minterms for part in parts])
    dfas = [
        Dfa(part.dfa.symbol_class[mine], part.dfa.next_state, part.dfa.accepting, part.dfa.start)
        for part, mine in zip(parts, members, strict=True)
    ]
    return coarsened(CharDfa(products.intersection(dfas, guard), shared))


def coarsened(part: CharDfa) -> CharDfa:
    """The same language over as few minterms as it tells apart."""
    # Minterms that read the same column are one minterm of the result.
    cell = np.where(part.minterms.cell == NO_MINTERM, NO_MINTERM, part.dfa.symbol_class[part.minterms.cell])
    # A cut between two intervals of one minterm is no longer needed.
    keep = np.concatenate([[True], cell[1:] != cell[:-1]])
    columns = part.dfa.next_state.shape[1]
    merged = Minterms(part.minterms.cuts[keep], cell[keep].astype(np.int32), columns, ())
    return CharDfa(
        Dfa(np.arange(columns, dtype=np.int32), part.dfa.next_state, part.dfa.accepting, part.dfa.start), merged
    )


def common_minterms(families: Sequence[Minterms]) -> tuple[Minterms, list[np.ndarray]]:
    """The coarsest partition that refines all, and for each family which of its minterms holds each part: int64 [M]."""
    cuts = np.unique(np.concatenate([family.cuts for family in families]))
    # [N, F]: the minterm of each interval in each family. Equal rows are one minterm of the refinement.
    cells = np.column_stack([family.of(cuts) for family in families])
    real = cells[:, 0] != NO_MINTERM
    first, which = unique_rows(cells[real])
    cell = np.full(len(cuts), NO_MINTERM, dtype=np.int32)
    cell[real] = which
    members_of = cells[real][first]
    return Minterms(cuts.astype(np.int32), cell, len(first), ()), list(members_of.T.astype(np.int64))
