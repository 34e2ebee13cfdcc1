"""Ours, as the service runs it, in one process."""

from __future__ import annotations

from typing import Literal

from tokenizers import Tokenizer

from app.models import open_model_files
from benchmarks.our_decoder import OurDecoder
from benchmarks.systems.base import CannotSay, Wanted
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec, Spec, spec_from_json
from compiler.text import answer_text
from decoding.model import HuggingFaceModel
from decoding.options import SearchOptions
from decoding.search import generate

LIMITS = Limits(compile_s_max=600.0)


def spec_of(wanted: Wanted) -> Spec:
    if wanted.concepts:
        return spec_from_json({"keywords": [list(forms) for forms in wanted.concepts], "ordered": wanted.ordered,
                               "inflect": False})  # fmt: skip
    if not wanted.pattern:
        raise CannotSay("there is nothing to keep")
    return RegexSpec(wanted.pattern)


class Ours:
    """The best answer of one search."""

    def __init__(self, beams: int, algorithm: Literal["abs", "banked"] = "banked") -> None:
        self._beams, self._algorithm = beams, algorithm

    def open(self, folder: str) -> None:
        files = open_model_files(folder)
        self._vocabulary = files.vocabulary
        self._tokenizer = Tokenizer.from_file(str(files.tokenizer_file))
        self._model = HuggingFaceModel.load(folder, device="cpu")
        self._decoder = OurDecoder(self._model, self._vocabulary, self._tokenizer)

    def constrain(self, wanted: Wanted) -> None:
        compiled = compile_spec(spec_of(wanted), self._vocabulary, LIMITS)
        self._text, self._constraint = compiled.text, self._decoder.constraint(compiled.tokens)

    def answer(self, prompt: str, max_tokens: int) -> str:
        options = SearchOptions(max_tokens, self._beams, self._algorithm)
        best = generate(self._model, self._tokenizer.encode(prompt).ids, self._constraint, options)[0]
        spelled = b"".join(self._vocabulary.tokens[token] or b"" for token in best.tokens)
        return answer_text(self._text, spelled.decode(errors="replace"))
