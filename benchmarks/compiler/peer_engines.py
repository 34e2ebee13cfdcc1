"""outlines-core, XGrammar and llguidance as engines. Each class imports its library when it is created."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engine import WARM_UP, ExpressionRefused, Figures, Masks, read_vocabulary

_WORD_BITS = 32
_COMPACT = (",", ":")


def _set_bits(words: np.ndarray, size: int) -> np.ndarray:
    """The ids whose bit is set in a mask of 32-bit words: int64 [N]."""
    return np.flatnonzero(np.unpackbits(words.reshape(-1).view(np.uint8), bitorder="little")[:size])


def _new_mask(size: int) -> np.ndarray:
    return np.zeros(-(-size // _WORD_BITS), dtype=np.int32)


class _PeerEngine:
    """An engine with the vocabulary of a gzipped `tokenizer.json`."""

    def __init__(self, tokenizer: Path) -> None:
        self._vocabulary = read_vocabulary(tokenizer)
        self.eos, self._size = self._vocabulary.eos_ids[0], self._vocabulary.size

    def warm_up(self) -> None:
        self.compile(Expression("regex", WARM_UP))

    def compile(self, expression: Expression) -> Masks:
        raise NotImplementedError

    def figures(self, masks: Masks) -> Figures:
        return {}


class OutlinesMasks:
    def __init__(self, index: Any, size: int) -> None:
        self._index, self._mask = index, _new_mask(size)
        self.restart()
        self.look_up()

    def restart(self) -> None:
        import outlines_core

        self._guide = outlines_core.Guide(self._index)

    def look_up(self) -> None:
        self._guide.write_mask_into(self._mask.ctypes.data, self._mask.size, self._mask.itemsize)

    def allowed(self) -> np.ndarray:
        return _set_bits(self._mask, self._mask.size * _WORD_BITS)

    def advance(self, token: int) -> None:
        self._guide.advance(token, return_tokens=False)


class OutlinesCoreEngine(_PeerEngine):
    """outlines-core: `Index` on a regex that ends with \\z, without which it loses texts of the language."""

    def __init__(self, tokenizer: Path) -> None:
        import outlines_core

        super().__init__(tokenizer)
        self._library = outlines_core
        ids: dict[bytes, list[int]] = {}
        for token, text in enumerate(self._vocabulary.tokens):
            if text:
                ids.setdefault(text, []).append(token)
        self._token_ids = outlines_core.Vocabulary(self.eos, ids)

    def compile(self, expression: Expression) -> OutlinesMasks:
        pattern = expression.text
        if expression.kind == "json_schema":
            pattern = self._library.json_schema.build_regex_from_schema(pattern, "")
        return OutlinesMasks(self._library.Index(rf"(?:{pattern})\z", self._token_ids), self._size)


class XGrammarMasks:
    def __init__(self, compiled: Any, size: int) -> None:
        import xgrammar

        self._compiled, self._size = compiled, size
        self._mask = xgrammar.allocate_token_bitmask(1, size)
        self.restart()
        self.look_up()

    def restart(self) -> None:
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher(self._compiled)

    def look_up(self) -> None:
        self._is_limited = self._matcher.fill_next_token_bitmask(self._mask)

    def allowed(self) -> np.ndarray:
        if not self._is_limited:  # then every token is allowed, and the mask is not written
            return np.arange(self._size)
        return _set_bits(self._mask.numpy(), self._size)

    def advance(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise ExpressionRefused(f"token {token} was allowed and then not accepted")


class XGrammarEngine(_PeerEngine):
    """XGrammar: one thread, without its cache, JSON without white space."""

    def __init__(self, tokenizer: Path) -> None:
        import xgrammar

        super().__init__(tokenizer)
        info = xgrammar.TokenizerInfo(
            [text or b"" for text in self._vocabulary.tokens], xgrammar.VocabType.RAW, vocab_size=self._size,
            stop_token_ids=list(self._vocabulary.eos_ids),
        )  # fmt: skip
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, expression: Expression) -> XGrammarMasks:
        if expression.kind == "json_schema":
            compiled = self._compiler.compile_json_schema(
                expression.text, any_whitespace=False, separators=_COMPACT, strict_mode=True
            )
        else:
            compiled = self._compiler.compile_regex(expression.text)
        return XGrammarMasks(compiled, self._size)


class LlguidanceMasks:
    """One matcher, which is reset between texts as a server would do."""

    def __init__(self, tokenizer: Any, grammar: str) -> None:
        import llguidance

        self._matcher = llguidance.LLMatcher(tokenizer, grammar)
        if self._matcher.get_error():
            raise ExpressionRefused(self._matcher.get_error())
        self._mask = _new_mask(tokenizer.vocab_size)
        self.look_up()

    def restart(self) -> None:
        self._matcher.reset()

    def look_up(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)

    def allowed(self) -> np.ndarray:
        return _set_bits(self._mask, self._mask.size * _WORD_BITS)

    def advance(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise ExpressionRefused(self._matcher.get_error() or f"token {token} was allowed and then not accepted")


class LlguidanceEngine(_PeerEngine):
    """llguidance: it computes a mask when it is looked up."""

    def __init__(self, tokenizer: Path) -> None:
        import llguidance

        super().__init__(tokenizer)
        self._library = llguidance
        with tempfile.TemporaryDirectory() as folder:
            unzipped = Path(folder) / "tokenizer.json"
            unzipped.write_bytes(gzip.decompress(tokenizer.read_bytes()))
            self._tokenizer = llguidance.LLTokenizer(str(unzipped), eos_token=self.eos)

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
