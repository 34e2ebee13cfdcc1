"""Ours as the service sets it up: what is made once for a model, and a constraint with its tables."""

from __future__ import annotations

from tokenizers import Tokenizer

from app.spelling import Speller
from compiler.token_automaton import TokenAutomaton
from compiler.vocabulary import Vocabulary
from decoding.constraint import Constraint
from decoding.estimate import token_prior
from decoding.forced import Pieces
from decoding.model import HuggingFaceModel
from decoding.texts import Texts


class OurDecoder:
    """A model with what all its constraints share."""

    def __init__(self, model: HuggingFaceModel, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self.model = model
        self.vocabulary = vocabulary
        tokens, eos_ids = vocabulary.tokens, vocabulary.eos_ids
        self._texts = Texts.of(tokens, eos_ids, model.device)
        self._pieces = Pieces(tokens, eos_ids, Speller(tokenizer, tokens))
        self._prior = token_prior(model)

    def constraint(self, automaton: TokenAutomaton) -> Constraint:
        return Constraint.prepare(
            automaton, self.model.device, prior=self._prior, texts=self._texts, pieces=self._pieces
        )
