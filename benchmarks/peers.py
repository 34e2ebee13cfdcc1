"""outlines-core, XGrammar and llguidance as engines of the benchmark. Each is imported when it is asked for."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine import WARM_UP, Figures, Masks, Refused, read_vocabulary
from benchmarks.suite import Expression

_WORD_BITS = 32
_COMPACT = (",", ":")


def _unpacked(words: np.ndarray, size: int) -> np.ndarray:
    """The ids whose bit is set in a mask of 32-bit words: int64 [N]."""
    return np.flatnonzero(np.unpackbits(words.reshape(-1).view(np.uint8), bitorder="little")[:size])


class OutlinesMasks:
    def __init__(self, index: Any, size: int) -> None:
        import outlines_core

        self._new_guide: Callable[[], Any] = partial(outlines_core.Guide, index)
        self._guide = self._new_guide()
        self._mask = np.zeros(-(-size // _WORD_BITS), dtype=np.int32)
        self.look_up()

    def restart(self) -> None:
        self._guide = self._new_guide()

    def look_up(self) -> None:
        self._guide.write_mask_into(self._mask.ctypes.data, self._mask.size, self._mask.itemsize)

    def allowed(self) -> np.ndarray:
        return _unpacked(self._mask, self._mask.size * _WORD_BITS)

    def advance(self, token: int) -> None:
        self._guide.advance(token, return_tokens=False)


class OutlinesCore:
    """outlines-core: `Index` on a regex closed with \\z, without which it drops texts from the language."""

    def __init__(self, tokenizer: Path) -> None:
        import outlines_core

        self._library = outlines_core
        vocabulary = read_vocabulary(tokenizer)
        self.eos, self._size = vocabulary.eos_ids[0], vocabulary.size
        by_text: dict[bytes, list[int]] = {}
        for token, text in enumerate(vocabulary.tokens):
            if text:
                by_text.setdefault(text, []).append(token)
        self._vocabulary = outlines_core.Vocabulary(self.eos, by_text)

    def warm_up(self) -> None:
        self.compile(Expression("regex", WARM_UP))

    def compile(self, expression: Expression) -> OutlinesMasks:
        pattern = expression.text
        if expression.kind == "json_schema":
            pattern = self._library.json_schema.build_regex_from_schema(pattern, "")
        return OutlinesMasks(self._library.Index(rf"(?:{pattern})\z", self._vocabulary), self._size)

    def figures(self, masks: Masks) -> Figures:
        return {}


class XGrammarMasks:
    def __init__(self, compiled: Any, size: int) -> None:
        import xgrammar

        self._new_matcher: Callable[[], Any] = partial(xgrammar.GrammarMatcher, compiled)
        self._matcher = self._new_matcher()
        self._mask = xgrammar.allocate_token_bitmask(1, size)
        self._size = size
        self.look_up()

    def restart(self) -> None:
        self._matcher = self._new_matcher()

    def look_up(self) -> None:
        self._limits = self._matcher.fill_next_token_bitmask(self._mask)

    def allowed(self) -> np.ndarray:
        if not self._limits:  # the mask is not written where every token may follow
            return np.arange(self._size)
        return _unpacked(self._mask.numpy(), self._size)

    def advance(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise Refused(f"token {token} was allowed and then not accepted")


class XGrammar:
    """XGrammar: one thread, its cache off, JSON without white space."""

    def __init__(self, tokenizer: Path) -> None:
        import xgrammar

        vocabulary = read_vocabulary(tokenizer)
        self.eos, self._size = vocabulary.eos_ids[0], vocabulary.size
        info = xgrammar.TokenizerInfo(
            [text or b"" for text in vocabulary.tokens],
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.size,
            stop_token_ids=list(vocabulary.eos_ids),
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def warm_up(self) -> None:
        self.compile(Expression("regex", WARM_UP))

    def compile(self, expression: Expression) -> XGrammarMasks:
        if expression.kind == "json_schema":
            compiled = self._compiler.compile_json_schema(
                expression.text, any_whitespace=False, separators=_COMPACT, strict_mode=True
            )
        else:
            compiled = self._compiler.compile_regex(expression.text)
        return XGrammarMasks(compiled, self._size)

    def figures(self, masks: Masks) -> Figures:
        return {}


class LlguidanceMasks:
    def __init__(self, tokenizer: Any, grammar: str) -> None:
        import llguidance

        self._matcher = llguidance.LLMatcher(tokenizer, grammar)
        if self._matcher.get_error():
            raise Refused(self._matcher.get_error())
        self._mask = np.zeros(-(-tokenizer.vocab_size // _WORD_BITS), dtype=np.int32)
        self.look_up()

    def restart(self) -> None:
        self._matcher.reset()

    def look_up(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)

    def allowed(self) -> np.ndarray:
        return _unpacked(self._mask, self._mask.size * _WORD_BITS)

    def advance(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise Refused(self._matcher.get_error() or f"token {token} was allowed and then not accepted")


class Llguidance:
    """llguidance: works a mask out when asked; one matcher is kept and reset between walks, as a server would."""

    def __init__(self, tokenizer: Path) -> None:
        import llguidance

        self._library = llguidance
        self.eos = read_vocabulary(tokenizer).eos_ids[0]
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "tokenizer.json"
            plain.write_bytes(gzip.decompress(tokenizer.read_bytes()))
            self._tokenizer = llguidance.LLTokenizer(str(plain), eos_token=self.eos)

    def warm_up(self) -> None:
        self.compile(Expression("regex", WARM_UP))

    def compile(self, expression: Expression) -> LlguidanceMasks:
        matcher = self._library.LLMatcher
        if expression.kind == "json_schema":
            compact: Any = {"whitespace_flexible": False, "item_separator": _COMPACT[0], "key_separator": _COMPACT[1]}
            grammar = matcher.grammar_from_json_schema(expression.text, overrides=compact)
        elif expression.kind == "lark":
            grammar = matcher.grammar_from_lark(expression.text)
        else:
            grammar = matcher.grammar_from_regex(expression.text)
        return LlguidanceMasks(self._tokenizer, grammar)

    def figures(self, masks: Masks) -> Figures:
        return {}
