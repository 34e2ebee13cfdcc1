"""BLEU-4 and CIDEr of captions against references: the formulas of the COCO caption evaluation, on plain words.

A caption's words are its runs of word characters and its single marks, in the case they are in.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

ORDERS = (1, 2, 3, 4)
_SIGMA = 6.0  # CIDEr-D's penalty on lengths that differ; plain CIDEr has none
_SCALE = 100.0  # the evaluation's own factor of ten, and another by which papers show it

Grams = Counter[tuple[str, ...]]


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def _grams(text: Sequence[str], order: int) -> Grams:
    return Counter(tuple(text[at : at + order]) for at in range(len(text) - order + 1))


def bleu_4(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Corpus BLEU-4, 0 to 100; the reference nearest in length counts for brevity (Papineni et al., 2002)."""
    matched, total = [0] * len(ORDERS), [0] * len(ORDERS)
    length = reference_length = 0
    for output, against in zip(outputs, references, strict=True):
        own, others = words(output), [words(text) for text in against]
        length += len(own)
        reference_length += min((abs(len(other) - len(own)), len(other)) for other in others)[1]
        for place, order in enumerate(ORDERS):
            most: Grams = Counter()
            for other in others:
                most |= _grams(other, order)
            grams = _grams(own, order)
            matched[place] += (grams & most).total()
            total[place] += grams.total()
    if not all(matched):
        return 0.0
    precision = sum(math.log(hit / of) for hit, of in zip(matched, total, strict=True)) / len(ORDERS)
    return 100.0 * math.exp(precision + min(0.0, 1.0 - reference_length / length))


def cider(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """CIDEr-D (Vedantam et al., 2015), weighted by how few sets of references hold an n-gram."""
    others = [[_vectors(words(text)) for text in against] for against in references]
    holds: Grams = Counter()
    for against in others:
        holds.update({gram for grams in against for of_order in grams for gram in of_order})
    size = math.log(len(references))

    def weighed(grams: Grams) -> dict[tuple[str, ...], float]:
        return {gram: count * (size - math.log(max(1.0, holds[gram]))) for gram, count in grams.items()}

    scores = []
    for output, against in zip(outputs, others, strict=True):
        own = _vectors(words(output))
        total = 0.0
        for grams in against:
            gap = own[1].total() - grams[1].total()  # of bigrams, as the evaluation has it
            likeness = sum(_likeness(weighed(a), weighed(b)) for a, b in zip(own, grams, strict=True)) / len(ORDERS)
            total += likeness * math.exp(-(gap**2) / (2 * _SIGMA**2))
        scores.append(total / len(against))
    return _SCALE * sum(scores) / len(scores)


def _vectors(text: Sequence[str]) -> list[Grams]:
    return [_grams(text, order) for order in ORDERS]


def _likeness(own: dict[tuple[str, ...], float], other: dict[tuple[str, ...], float]) -> float:
    """Their cosine, what `own` has too much of left out."""
    norm = math.sqrt(sum(value**2 for value in own.values()) * sum(value**2 for value in other.values()))
    if not norm:
        return 0.0
    return sum(min(value, other.get(gram, 0.0)) * other.get(gram, 0.0) for gram, value in own.items()) / norm
