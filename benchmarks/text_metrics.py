"""How texts are judged: by well-kept libraries where there are any, all on the same words.

BLEU-4 by sacrebleu, ROUGE-L by rouge-score, CIDEr by pycocoevalcap; a concept is covered where the text has a word of
its lemma, by simplemma, or one of its listed forms. SPICE needs Java and its parser's models, and is left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import simplemma
from pycocoevalcap.cider.cider import Cider
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU

from benchmarks.caption_scores import words

_CIDER_SCALE = 10.0  # as papers show it


class _Words:
    """rouge-score's tokenizer, replaced by ours, in lower case as its own."""

    def tokenize(self, text: str) -> list[str]:
        return words(text.lower())


def _spaced(text: str) -> str:
    return " ".join(words(text))


def bleu_4(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Of the whole corpus, 0 to 100; the reference nearest in length counts for brevity."""
    most = max(map(len, references))
    streams: Any = [[_spaced(of[place]) if place < len(of) else None for of in references] for place in range(most)]
    scorer = BLEU(tokenize="none", smooth_method="none", force=True)
    return float(scorer.corpus_score([_spaced(text) for text in texts], streams).score)


def cider(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """CIDEr-D times ten."""
    told = {at: [_spaced(text)] for at, text in enumerate(texts)}
    against = {at: [_spaced(text) for text in of] for at, of in enumerate(references)}
    return float(Cider().compute_score(against, told)[0]) * _CIDER_SCALE


def rouge_l(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean over texts of the best F1 against any of their references, 0 to 100."""
    scorer = RougeScorer(["rougeL"], tokenizer=_Words())
    best = (scorer.score_multi(list(of), text)["rougeL"].fmeasure for text, of in zip(texts, references, strict=True))
    return 100.0 * statistics.fmean(best)


def is_of(word: str, concept: str, forms: Sequence[str]) -> bool:
    """Whether a word in lower case is one of a concept's."""
    return word in forms or concept in (word, simplemma.lemmatize(word, "en"))


def covered(text: str, concepts: Sequence[str], forms: Sequence[Sequence[str]]) -> int:
    """How many of the concepts occur."""
    own = [word.lower() for word in words(text)]
    return sum(any(is_of(word, concept, of) for word in own) for concept, of in zip(concepts, forms, strict=True))


def covered_in_order(text: str, concepts: Sequence[str], forms: Sequence[Sequence[str]]) -> int:
    """How many of the first concepts occur one after another."""
    done = 0
    for word in words(text):
        if done < len(concepts) and is_of(word.lower(), concepts[done], forms[done]):
            done += 1
    return done
