r"""The named sets of characters of ECMAScript, and its flag i.

ECMAScript compares characters under `i` and `u` by their simple case folding: `k` is the Kelvin sign, and `s` the long
s, but the dotless i is no other letter. Knows nothing of patterns.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from compiler.automata import CODE_POINTS, CharSet, charset, charset_complement, charset_union

_LINE_ENDS: CharSet = ((0x0A, 0x0B), (0x0D, 0x0E), (0x2028, 0x202A))
NO_LINE_END = charset_complement(_LINE_ENDS)
_SPACES = (0x20, 0xA0, 0x1680, 0x202F, 0x205F, 0x3000, 0xFEFF)
_SETS: dict[str, CharSet] = {
    "d": ((0x30, 0x3A),),
    "w": ((0x30, 0x3A), (0x41, 0x5B), (0x5F, 0x60), (0x61, 0x7B)),
    "s": charset([(0x09, 0x0E), (0x2000, 0x200B), *_LINE_ENDS, *((code, code + 1) for code in _SPACES)]),
}
_BLOCK = 256


@lru_cache(maxsize=16)
def named_set(letter: str, ignore_case: bool) -> CharSet:
    r"""The characters of an escape, as `\w`. Under `i` it has those whose other case it has.

    >>> named_set("w", ignore_case=True)[-2:]  # the long s and the Kelvin sign
    ((383, 384), (8490, 8491))
    """
    characters = _SETS[letter.lower()]
    characters = fold_case(characters) if ignore_case else characters
    return charset_complement(characters) if letter.isupper() else characters


@lru_cache(maxsize=256)
def class_set(sets: tuple[CharSet, ...], ignore_case: bool, negated: bool) -> CharSet:
    """The characters of a class, which lists sets. A negation applies after `i`."""
    characters = charset_union(*sets)
    characters = fold_case(characters) if ignore_case else characters
    return charset_complement(characters) if negated else characters


@lru_cache(maxsize=1024)
def fold_case(characters: CharSet) -> CharSet:
    """The characters, and all that have another case of one.

    >>> fold_case(((0x6B, 0x6C),))  # k, K and the Kelvin sign
    ((75, 76), (107, 108), (8490, 8491))
    """
    codes, classes = _case_classes()
    # Ascending edges: a code behind an odd number of them is in an interval.
    inside = np.searchsorted(np.array(characters).reshape(-1), codes, side="right") % 2 == 1
    found = codes[np.isin(classes, classes[inside])].tolist()
    return charset([*characters, *((code, code + 1) for code in found)])


@lru_cache(maxsize=1)
def _case_classes() -> tuple[np.ndarray, np.ndarray]:
    """The characters that have other cases, and the case class of each.

    Both are int64 [N].
    """
    classes = dict[str, set[str]]()
    for low in range(0, CODE_POINTS, _BLOCK):
        block = "".join(map(chr, range(low, low + _BLOCK)))
        # Most blocks have no cased character, which one comparison of whole strings shows.
        for char in block if block.casefold() != block else "":
            # Python has full foldings. Equal ones are equal simple ones, which is so from Unicode 15.1 on.
            if (folded := char.casefold()) != char:
                classes.setdefault(folded, {folded} if len(folded) == 1 else set()).add(char)
    pairs = [(ord(char), number) for number, members in enumerate(classes.values()) for char in members]
    codes, numbers = np.array(pairs).T
    return codes, numbers
