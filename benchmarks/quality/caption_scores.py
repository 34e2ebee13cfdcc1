"""BLEU-4 and CIDEr by the formulas of the COCO caption evaluation.

The words of a caption are its runs of word characters and its single punctuation marks, case-sensitive.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

ORDERS = (1, 2, 3, 4)
_SIGMA = 6.0  # of CIDEr-D's penalty on different lengths, which CIDEr lacks
_SCALE = 100.0  # the evaluation's own factor of ten, and another that papers apply

NGrams = Counter[tuple[str, ...]]


def words(text: str) -> list[str]:
    """The words of a caption."""
    return re.findall(r"\w+|[^\w\s]", text)


def _ngrams(text: Sequence[str], order: int) -> NGrams:
    return Counter(tuple(text[at : at + order]) for at in range(len(text) - order + 1))


def bleu_4(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Corpus BLEU-4, 0 to 100 (Papineni et al., 2002). The brevity penalty takes the nearest reference length."""
    matches, total = [0] * len(ORDERS), [0] * len(ORDERS)
    length = reference_length = 0
    for output, texts in zip(outputs, references, strict=True):
        candidate, reference_words = words(output), [words(text) for text in texts]
        length += len(candidate)
        reference_length += min((abs(len(target) - len(candidate)), len(target)) for target in reference_words)[1]
        for at, order in enumerate(ORDERS):
            maxima: NGrams = Counter()
            for reference in reference_words:
                maxima |= _ngrams(reference, order)
            grams = _ngrams(candidate, order)
            matches[at] += (grams & maxima).total()
            total[at] += grams.total()
    if not all(matches):
        return 0.0
    precision = sum(math.log(hits / count) for hits, count in zip(matches, total, strict=True)) / len(ORDERS)
    return 100.0 * math.exp(precision + min(0.0, 1.0 - reference_length / length))


def cider(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """CIDEr-D (Vedantam et al., 2015), which weighs rare reference n-grams more."""
    reference_vectors = [[_vectors(words(text)) for text in texts] for texts in references]
    document_count: NGrams = Counter()
    for vectors in reference_vectors:
        document_count.update({gram for by_order in vectors for grams in by_order for gram in grams})
    size = math.log(len(references))

    def weigh(grams: NGrams) -> dict[tuple[str, ...], float]:
        return {gram: count * (size - math.log(max(1.0, document_count[gram]))) for gram, count in grams.items()}

    scores = []
    for output, vectors in zip(outputs, reference_vectors, strict=True):
        candidate = _vectors(words(output))
        total = 0.0
        for reference in vectors:
            gap = candidate[1].total() - reference[1].total()  # of bigrams, as in the evaluation's code
            pairs = zip(candidate, reference, strict=True)
            similarity = sum(_similarity(weigh(left), weigh(right)) for left, right in pairs) / len(ORDERS)
            total += similarity * math.exp(-(gap**2) / (2 * _SIGMA**2))
        scores.append(total / len(vectors))
    return _SCALE * sum(scores) / len(scores)


def _vectors(text: Sequence[str]) -> list[NGrams]:
    return [_ngrams(text, order) for order in ORDERS]


def _similarity(candidate: dict[tuple[str, ...], float], reference: dict[tuple[str, ...], float]) -> float:
    """Their cosine, with the candidate's values clipped to the reference's."""
    norm = math.sqrt(sum(value**2 for value in candidate.values()) * sum(value**2 for value in reference.values()))
    if not norm:
        return 0.0
    clipped = (min(value, reference.get(gram, 0.0)) * reference.get(gram, 0.0) for gram, value in candidate.items())
    return sum(clipped) / norm
