"""Our search in one process, configured as in the service."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from app.models import open_model_files
from benchmarks.systems.base import TextConstraint
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec, Spec, spec_from_json
from compiler.text import answer_text
from compiler.vocab import Vocabulary
from decoding.forced_tokens import Speller, TokenBytes
from decoding.heuristic import find_endings, unigram_prior
from decoding.model import HuggingFaceModel, LanguageModel
from decoding.options import Algorithm, SearchOptions
from decoding.prepared_constraint import Automaton, PreparedConstraint
from decoding.search import generate

LIMITS = Limits(compile_s_max=600.0)


class ConstraintPreparer:
    """The estimates and tables that all constraints of a model share."""

    def __init__(self, model: LanguageModel[Any], vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self._device = model.device
        self._token_bytes = TokenBytes(vocabulary.tokens, model.eos_ids, Speller(tokenizer, vocabulary.tokens))
        self._prior = unigram_prior(model)
        self._endings = find_endings(model, self._prior)

    def prepare(self, automaton: Automaton, *, forced_tokens: bool = True) -> PreparedConstraint:
        """An automaton with its tables. `forced_tokens` switches jump-forward decoding on."""
        token_bytes = self._token_bytes if forced_tokens else None
        return PreparedConstraint.prepare(
            automaton, self._device, prior=self._prior, pieces=token_bytes, endings=self._endings
        )


def spec_of(constraint: TextConstraint) -> Spec:
    """Our form of a constraint. Raises ConstraintNotSupported."""
    if constraint.concepts:
        return spec_from_json({"keywords": [list(forms) for forms in constraint.concepts],
                               "ordered": constraint.ordered, "inflect": False})  # fmt: skip
    return RegexSpec(constraint.regex())


class OurSearch:
    """Returns the best answer of one search."""

    def __init__(self, beams: int, algorithm: Algorithm = "banked") -> None:
        self._beams, self._algorithm = beams, algorithm

    def open(self, folder: str) -> None:
        files = open_model_files(folder)
        self._vocabulary = files.vocabulary
        self._tokenizer = Tokenizer.from_file(str(files.tokenizer_file))
        self._model = HuggingFaceModel.load(folder, device="cpu")
        self._preparer = ConstraintPreparer(self._model, self._vocabulary, self._tokenizer)

    def constrain(self, constraint: TextConstraint) -> None:
        compiled = compile_spec(spec_of(constraint), self._vocabulary, LIMITS)
        self._text, self._constraint = compiled.text, self._preparer.prepare(compiled.tokens)

    def answer(self, prompt: str, max_tokens: int) -> str:
        options = SearchOptions(max_tokens, beams=self._beams, algorithm=self._algorithm)
        best = generate(self._model, self._tokenizer.encode(prompt).ids, self._constraint, options)[0]
        content = b"".join(self._vocabulary.tokens[token] or b"" for token in best.tokens)
        return answer_text(self._text, content.decode(errors="replace"))
