"""Ours as the service sets it up: what is made once for a model, and a constraint with its tables."""

from __future__ import annotations

from tokenizers import Tokenizer

from app.models.tokenizer import Speller
from compiler.lifting import TokenAutomaton
from compiler.vocab import Vocabulary
from decoding.forced_tokens import TokenBytes
from decoding.heuristic import find_endings, unigram_prior
from decoding.model import HuggingFaceModel
from decoding.prepared_constraint import PreparedConstraint


class OurDecoder:
    """A model with what all its constraints share."""

    def __init__(self, model: HuggingFaceModel, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self._pieces = TokenBytes(vocabulary.tokens, vocabulary.eos_ids, Speller(tokenizer, vocabulary.tokens))
        self._prior = unigram_prior(model)
        self._endings = find_endings(model, self._prior)

    def constraint(self, automaton: TokenAutomaton) -> PreparedConstraint:
        return PreparedConstraint.prepare(
            automaton, self.model.device, prior=self._prior, pieces=self._pieces, endings=self._endings
        )
