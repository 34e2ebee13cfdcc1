"""Scores of texts by public libraries, all on the same words.

BLEU-4 by sacrebleu, ROUGE-L by rouge-score, CIDEr by pycocoevalcap. A concept is covered if the text has a word of its
lemma, by simplemma, or one of its listed forms. SPICE is left out: it needs Java and the models of its parser.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import simplemma
from pycocoevalcap.cider.cider import Cider
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU

from benchmarks.quality.caption_scores import words

_CIDER_SCALE = 10.0  # papers give ten times the library's value


class _WordTokenizer:
    """rouge-score's tokenizer, replaced by our words in lower case."""

    def tokenize(self, text: str) -> list[str]:
        return words(text.lower())


def _spaced(text: str) -> str:
    return " ".join(words(text))


def bleu_4(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Corpus BLEU-4, 0 to 100, with brevity penalty. The penalty takes the nearest reference length."""
    count = max(map(len, references))
    streams: Any = [[_spaced(group[at]) if at < len(group) else None for group in references] for at in range(count)]
    scorer = BLEU(tokenize="none", smooth_method="none", force=True)
    return float(scorer.corpus_score([_spaced(text) for text in texts], streams).score)


def cider(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """CIDEr-D times ten."""
    candidates = {at: [_spaced(text)] for at, text in enumerate(texts)}
    gts = {at: [_spaced(text) for text in group] for at, group in enumerate(references)}
    return float(Cider().compute_score(gts, candidates)[0]) * _CIDER_SCALE


def rouge_l(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean of each text's best ROUGE-L F1, 0 to 100. Each text is compared with all its references."""
    scorer = RougeScorer(["rougeL"], tokenizer=_WordTokenizer())
    pairs = zip(texts, references, strict=True)
    return 100.0 * statistics.fmean(scorer.score_multi(list(group), text)["rougeL"].fmeasure for text, group in pairs)


def is_of(word: str, concept: str, forms: Sequence[str]) -> bool:
    """Whether a lower-case word is a form of a concept."""
    return word in forms or concept in (word, simplemma.lemmatize(word, "en"))


def concepts_covered(text: str, concepts: Sequence[str], forms: Sequence[Sequence[str]]) -> int:
    """The number of concepts that occur."""
    text_words = [word.lower() for word in words(text)]
    pairs = zip(concepts, forms, strict=True)
    return sum(any(is_of(word, concept, of_concept) for word in text_words) for concept, of_concept in pairs)


def leading_concepts(text: str, concepts: Sequence[str], forms: Sequence[Sequence[str]]) -> int:
    """The number of leading concepts that occur one after another."""
    count = 0
    for word in words(text):
        if count < len(concepts) and is_of(word.lower(), concepts[count], forms[count]):
            count += 1
    return count
