"""A hundred patterns that people ask for, of ten kinds: what a decoder is to keep when its budget runs out."""

from __future__ import annotations

from itertools import product

_ANIMALS, _PLACES = ("dog", "cat", "horse", "bird", "cow"), ("park", "street")
_WORDS = (
    ("snow", "hill"), ("ball", "beach"), ("guitar", "stage"), ("cake", "table"), ("boat", "lake"), ("road", "bike"),
    ("kite", "field"), ("phone", "chair"), ("train", "track"), ("pizza", "oven"),
)  # fmt: skip


def patterns() -> tuple[str, ...]:
    """Ten of each kind. All of one line, and none with words of Unicode: every engine reads them alike."""
    sizes = range(1, 11)
    found = [
        *(rf"[A-Z][a-z]+( [a-z]+){{{least},{least + 6}}}\." for least in sizes),
        *(rf"A [a-z ]*{animal}[a-z ]*{place}[a-z ]*\." for animal, place in product(_ANIMALS, _PLACES)),
        *(rf"(The|A) (man|woman|girl|boy) [a-z ]*{one}[a-z ]* and [a-z ]*{two}\." for one, two in _WORDS),
        *(rf"[A-Z][a-z ]{{{5 * least},{5 * least + 40}}}\." for least in sizes),
        *(rf"[a-z ]*{one}[a-z ]*{two}[a-z ]*{one}\." for one, two in _WORDS),
        *(rf"(19|20)[0-9]{{2}}-(0[1-9]|1[0-2])-[0-3][0-9]: [a-z ]{{{least},{least + 30}}}\." for least in sizes),
        *(rf'\{{"{one}": "[a-z ]{{3,20}}", "{two}": "[a-z ]{{3,20}}"\}}' for one, two in _WORDS),
        *(rf"([a-z]+, ){{{least},{least + 3}}}and [a-z]+" for least in sizes),
        *(rf'\["[a-z]{{3,12}}"(, "[a-z]{{3,12}}"){{{least - 1},{least + 2}}}\]' for least in sizes),
        *(rf"{one}: [0-9]{{1,3}} (grams|cups); {two}: [0-9]{{1,3}} (grams|cups)\." for one, two in _WORDS),
    ]
    return tuple(found)
