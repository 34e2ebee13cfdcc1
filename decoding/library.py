"""Constrained generation without a server, with a model of the caller's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tokenizers import Tokenizer
from transformers import PreTrainedModel

from compiler.artifact import CompiledConstraint
from compiler.errors import SpecUnsupported, VocabularyError
from compiler.pipeline import compile_spec
from compiler.spec import LabelsSpec, caller_names, in_caller_names, spec_from_json
from compiler.text import check_text, replay, stripped_answer, written_text
from compiler.vocab import Vocabulary, vocabulary_from_tokenizer_json
from decoding.errors import ReplayRejected, VocabularyMismatch
from decoding.forced_tokens import Speller, TokenBytes
from decoding.generation import Hypothesis
from decoding.heuristic import find_endings, unigram_prior
from decoding.model import HuggingFaceModel, eos_ids_of
from decoding.options import SearchOptions, require
from decoding.penalties import PenalizedScores, Penalties
from decoding.prepared_constraint import PreparedConstraint
from decoding.replay import replay as replay_tokens
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of
from decoding.tensors import LOG_PROB_FLOOR
from decoding.token_texts import TokenTexts

ConstraintLike: TypeAlias = Mapping[str, Any] | CompiledConstraint
"""A constraint as in requests to the service, such as {"keywords": ["dog"]}, or a compiled one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedToken:
    """One token of an answer. The last one is EOS, which writes no text.

    text          what it writes; replacement characters where it ends inside a character
    log_prob      the model's own
    distance      fewest tokens from there to acceptance; 0 after EOS
    state         of the constraint's automaton over texts
    propositions  of each word or punctuation mark that ends with it
    """

    token: int
    text: str
    log_prob: float
    distance: int
    state: int
    propositions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A text that satisfies its constraint.

    text       without needless white space around it
    raw_text   what the tokens write
    satisfied  True: it was checked on the finished text, and an answer that fails is an error
    log_prob   the sum of the tokens' log-probs
    captures   name and text of each captured part of a sequence; None where to divide the text takes too many steps
    not_enforced  JSON pointers of schema keywords that have no effect, as a standard's annotations have none
    approximate   those that have none because the constraint allows it
    """

    text: str
    raw_text: str
    satisfied: bool
    log_prob: float
    trace: tuple[TracedToken, ...]
    captures: tuple[tuple[str, str], ...] | None = ()
    not_enforced: tuple[str, ...] = ()
    approximate: tuple[str, ...] = ()


class ConstrainedModel:
    """A loaded model with its tokenizer, for many generations. Not thread-safe.

    It keeps the tables of the constraint that it used last.

    The constructor reads the vocabulary and measures the model's prior, which takes as long as a short generation. It
    sets the model to evaluation, turns its gradients off, and exchanges its attention for one that serves the search
    and acts as before elsewhere.

    model      a causal language model of transformers
    tokenizer  of transformers, or of the tokenizers library
    Raises VocabularyError for a tokenizer whose tokens have no bytes of their own, or other ones than its library
    decodes, VocabularyMismatch for one of another model, and ModelUnavailable for a model that names no token that ends
    a text, or that keeps no cache.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any) -> None:
        self.vocabulary = vocabulary_of(model, tokenizer)
        self._tokenizer = _copy_of(tokenizer, self.vocabulary.size)
        self._model = HuggingFaceModel.of_loaded(model)
        self._texts = TokenTexts(self._tokenizer, self.vocabulary.written)
        tokens = self.vocabulary.tokens
        self._pieces = TokenBytes(tokens, self.vocabulary.eos_ids, Speller(self._tokenizer, tokens))
        self._prior = unigram_prior(self._model)
        self._endings = find_endings(self._model, self._prior)
        self._prepared: tuple[CompiledConstraint, PreparedConstraint] | None = None

    def compile(self, constraint: Mapping[str, Any]) -> CompiledConstraint:
        """A constraint compiled for the model, to be used repeatedly. Raises CompileError."""
        spec = spec_from_json(constraint)
        if isinstance(spec, LabelsSpec):
            raise SpecUnsupported("labels are no texts of a language model", construct="labels", field="labels")
        return compile_spec(spec, self.vocabulary)

    def generate(
        self, prompt: str | Sequence[int], constraint: ConstraintLike, options: SearchOptions | SamplingOptions
    ) -> tuple[Answer, ...]:
        """Up to `options.n` answers, the best first. Those of a sampling are in the order of their rows.

        prompt  a text, which gets what the tokenizer puts before it, or ids, as of a chat template
        Raises CompileError where the constraint is at fault or needs a larger budget, and DecodeError else.
        """
        compiled = constraint if isinstance(constraint, CompiledConstraint) else self.compile(constraint)
        require(compiled.vocabulary == self.vocabulary.fingerprint, "constraint", "compiled for this model's tokens")
        ids = self._tokenizer.encode(prompt).ids if isinstance(prompt, str) else list(prompt)
        within = all(0 <= token < self._model.vocab_size for token in ids)
        require(within, "prompt", "a text or ids in the model's vocabulary")
        prepared = self._prepare(compiled)
        prepared.refuse_early(self._model, len(ids), options.max_tokens)
        generation = (
            Sampling(prepared, options, prompt_ids=ids) if isinstance(options, SamplingOptions)
            else search_of(prepared, options, text_of=self._stripped, prompt_ids=ids)
        )  # fmt: skip
        found = drive(self._model, ids, generation)
        return tuple(self._answer(hypothesis, compiled, ids, options) for hypothesis in found)

    def _prepare(self, compiled: CompiledConstraint) -> PreparedConstraint:
        if self._prepared is None or self._prepared[0] is not compiled:
            prepared = PreparedConstraint.prepare(
                compiled.tokens, self._model.device, prior=self._prior, pieces=self._pieces, endings=self._endings
            )
            self._prepared = compiled, prepared
        return self._prepared[1]

    def _stripped(self, tokens: tuple[int, ...]) -> bytes:
        return self._texts.text(tokens).strip().encode()

    def _answer(
        self, hypothesis: Hypothesis, compiled: CompiledConstraint, prompt: list[int],
        options: SearchOptions | SamplingOptions,
    ) -> Answer:
        """The answer, after the same two checks as in the service. Raises ReplayRejected, which would be a bug."""
        model, tokens = self._model, hypothesis.tokens
        penalties = None
        if isinstance(options, SearchOptions):
            penalties = Penalties.of_options(options, prompt, model.vocab_size, model.device)
        penalized = None if penalties is None else PenalizedScores(penalties, tokens)
        own = model.score(prompt, tokens, penalized)
        scored = own if penalized is None else penalized.scored
        steps = replay_tokens(compiled.tokens, hypothesis, scored, options, tolerance=model.tolerance)
        raw = self._texts.compared(tokens)
        text = stripped_answer(compiled.text, raw, None)
        if not check_text(compiled.text, text).satisfied:
            raise ReplayRejected("the finished text does not satisfy its constraint")
        pieces = [self.vocabulary.written[token] or b"" for token in tokens[:-1]]
        words, names = replay(compiled.text, pieces), caller_names(compiled.spec)
        log_probs = [max(log_prob, LOG_PROB_FLOOR) for log_prob in own.log_probs]
        trace = tuple(
            TracedToken(
                token=step.token, text=piece.decode(errors="replace"), log_prob=log_prob, distance=step.distance,
                state=word.state, propositions=tuple(in_caller_names(letter, names) for letter in word.letters),
            )
            for step, piece, log_prob, word in zip(steps, [*pieces, b""], log_probs, words, strict=True)
        )
        return Answer(
            text=text, raw_text=raw, satisfied=True, log_prob=sum(log_probs), trace=trace,
            captures=self._captures(compiled, text, tokens[:-1]), not_enforced=compiled.not_enforced,
            approximate=compiled.approximate,
        )

    def _captures(
        self, compiled: CompiledConstraint, text: str, tokens: Sequence[int]
    ) -> tuple[tuple[str, str], ...] | None:
        """Name and text of each captured part."""
        if not compiled.captures:
            return ()
        names = {self.vocabulary.names[name]: name for name in compiled.named_tokens}
        pieces = [(self.vocabulary.written[token] or b"", names.get(token)) for token in tokens]
        spans = compiled.captured(written_text(text, pieces))
        return None if spans is None else tuple((span.name, text[span.start : span.end]) for span in spans)


def generate(
    model: PreTrainedModel, tokenizer: Any, prompt: str | Sequence[int], constraint: ConstraintLike, *,
    max_tokens: int, beams: int = 16,
) -> Answer:
    """The most probable text found that satisfies a constraint within a budget.

    max_tokens  the budget, the token that ends the text included
    Raises what ConstrainedModel does. One of your own serves further calls faster, and takes more options.
    """
    options = SearchOptions(max_tokens=max_tokens, beams=beams)
    return ConstrainedModel(model, tokenizer).generate(prompt, constraint, options)[0]


def vocabulary_of(model: PreTrainedModel, tokenizer: Any) -> Vocabulary:
    """The bytes of each id of a model. The model stays as it is.

    Raises what the constructor of ConstrainedModel does.
    """
    size = int(model.config.get_text_config().vocab_size)
    backend = _backend(tokenizer)
    count = backend.get_vocab_size(with_added_tokens=False)
    if count > size:
        raise VocabularyMismatch(count, size)
    return vocabulary_from_tokenizer_json(backend.to_str(), size, eos_ids_of(model))


def _backend(tokenizer: Any) -> Tokenizer:
    """The tokenizer of the tokenizers library. Raises VocabularyError for one that has none."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        raise VocabularyError(
            f"the tokenizer, a {type(tokenizer).__name__}, has no tokenizer.json: load it by AutoTokenizer from a "
            "folder or a name with such a file"
        )
    return backend


def _copy_of(tokenizer: Any, size: int) -> Tokenizer:
    """A copy without truncation, padding, and added tokens beyond the model's ids."""
    data = json.loads(_backend(tokenizer).to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["id"] < size]
    copy: Tokenizer = Tokenizer.from_str(json.dumps(data))
    copy.no_truncation()
    copy.no_padding()
    return copy
