"""The protocol of an engine, and all engines by name.

The engines are our compiler and three libraries. An engine loads a vocabulary, compiles a constraint, and looks up the
allowed tokens. The class of a library imports it when it is created.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from benchmarks.compiler.cases import Expression
from compiler.grammars import read_grammar
from compiler.json_schema import FORMATS
from compiler.lifting import UNREACHABLE, TokenAutomaton, TokenMasks
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.products import LazyProduct, ProductStates
from compiler.pushdown import Configurations, PushdownAutomaton, build_machine, lift_to_tokens
from compiler.spec import spec_from_json
from compiler.text import AnyTokens
from compiler.vocab import Vocabulary, vocabulary_from_tokenizer_json

WARM_UP = "(?:umbrella|violin)"
_END_OF_TEXT = ("<|endoftext|>", "</s>", "<eos>")
_WORD_BITS = 32
# A run has a time limit of its own, and grammars of up to 10,000 rules.
GRAMMAR_LIMITS = Limits(compile_s_max=3_600.0, grammar_chars_max=1_000_000)
_COMPACT = (",", ":")
Figures = dict[str, int]


class ExpressionRefused(Exception):
    """The engine does not accept the constraint; the message says why."""


class Masks(Protocol):
    """A compiled constraint in the middle of a text."""

    def restart(self) -> None:
        """Return to the empty text."""

    def look_up(self) -> None:
        """Compute which tokens are allowed; this is timed. The result stays in the engine's own format."""

    def allowed(self) -> np.ndarray:
        """The ids that the last look-up allowed, including EOS: int64 [N]."""

    def allows(self, token: int) -> bool:
        """Whether the last look-up allowed this id."""

    def advance(self, token: int) -> None:
        """Append an allowed token other than EOS."""


class MaskEngine(Protocol):
    """An engine with a vocabulary."""

    vocabulary: Vocabulary
    eos: int

    def warm_up(self) -> None:
        """Compile small constraints first, to exclude one-time work of the engine."""

    def compile(self, expression: Expression) -> Masks:
        """Everything up to and including the first look-up."""

    def figures(self, masks: Masks) -> Figures:
        """Counts of the compiled constraint by name. It is empty if the engine provides none."""


def read_vocabulary(tokenizer: Path, size: int | None = None) -> Vocabulary:
    """The vocabulary of a gzipped `tokenizer.json`, with its end-of-text token as EOS. It is padded to `size` ids."""
    text = gzip.decompress(tokenizer.read_bytes()).decode()
    added = json.loads(text)["added_tokens"]
    eos = next(token["id"] for token in added if token["content"] in _END_OF_TEXT)
    return vocabulary_from_tokenizer_json(text, size, (eos,))


class OurMasks:
    """Our masks by token class.

    A look-up computes the allowed token classes of a state; `expand` also spreads them over the ids, as bits.
    """

    def __init__(self, tokens: TokenAutomaton) -> None:
        self.tokens: AnyTokens = tokens
        self._explicit, self._state = tokens, tokens.start
        self._class_of = tokens.token_class.astype(np.intp)
        self._masks = TokenMasks(tokens)
        self.look_up()

    def restart(self) -> None:
        self._state = self._explicit.start

    def look_up(self) -> None:
        """The search's work for one beam: successor and permission by class."""
        self._successors = self._explicit.successors(self._state)
        self._distance = self._explicit.distance[self._successors]
        self._open = self._distance < UNREACHABLE  # with a budget: <= the tokens left

    def expand(self) -> None:
        """The same for each id of the vocabulary, as bits."""
        self._masks.of_classes(self._open)

    def allowed(self) -> np.ndarray:
        return np.flatnonzero(self._open[self._class_of])

    def allowed_within(self, tokens_left: int) -> np.ndarray:
        """The ids that leave a distance of at most `tokens_left`: int64 [N]."""
        return np.flatnonzero((self._distance <= tokens_left)[self._class_of])

    def allows(self, token: int) -> bool:
        return bool(self._open[self._class_of[token]])

    def advance(self, token: int) -> None:
        self._state = int(self._successors[self._class_of[token]])


class PushdownMasks(OurMasks):
    """The same over a pushdown automaton or a product. States are found as they are met."""

    def __init__(self, tokens: PushdownAutomaton | LazyProduct) -> None:
        self.tokens = self._automaton = tokens
        self._class_of = tokens.token_class.astype(np.intp)
        self._masks = TokenMasks(cast(TokenAutomaton, tokens))  # it reads classes and sizes alone
        self.restart()
        self.look_up()

    def restart(self) -> None:
        automaton = self._automaton
        self._states = ProductStates(automaton) if isinstance(automaton, LazyProduct) else Configurations(automaton)
        self._state = self._states.start

    def look_up(self) -> None:
        self._distance = self._states.expand(self._state)[0]
        self._open = self._distance < UNREACHABLE

    def advance(self, token: int) -> None:
        self._state = self._states.advance(self._state, token)

    @property
    def distance(self) -> int:
        """The fewest tokens from here to acceptance, EOS included."""
        return self._states.distance_of(self._state)


def _masks(tokens: AnyTokens) -> OurMasks:
    """The masks of an automaton, behind the first look-up."""
    masks = OurMasks(tokens) if isinstance(tokens, TokenAutomaton) else PushdownMasks(tokens)
    masks.expand()
    return masks


class OurEngine:
    """Compiles constraints in our JSON form.

    limits     of a compilation
    cancelled  as in `compile_spec`
    """

    def __init__(self, tokenizer: Path) -> None:
        self.limits, self.cancelled = DEFAULT_LIMITS, lambda: False
        self.vocabulary = read_vocabulary(tokenizer)
        self.eos = self.vocabulary.eos_ids[0]
        # Built once for each vocabulary: the service's sandbox has them before its first job.
        self.tables = self.vocabulary.outlines, self.vocabulary.counted_outlines

    def warm_up(self) -> None:
        formats = {name: {"type": "string", "format": name} for name in sorted(FORMATS)}
        for constraint in (
            {"keywords": ["umbrella", "violin"]},
            {"regex": rf"(?i){WARM_UP}[\w\d\s]"},
            {"json_schema": {"type": "object", "properties": formats}},
        ):
            _masks(compile_spec(spec_from_json(constraint), self.vocabulary, GRAMMAR_LIMITS).tokens)

    def compile(self, expression: Expression) -> OurMasks:
        if expression.kind == "lark":
            guard = ResourceGuard(GRAMMAR_LIMITS)
            machine = build_machine(read_grammar(expression.text, "lark", guard).grammar, guard)
            tokens: AnyTokens = lift_to_tokens(machine, self.vocabulary, guard)
        else:
            spec = spec_from_json(json.loads(expression.text))
            tokens = compile_spec(spec, self.vocabulary, self.limits, self.cancelled).tokens
        return _masks(tokens)

    def figures(self, masks: Masks) -> Figures:
        assert isinstance(masks, OurMasks)
        tokens = masks.tokens
        figures = {"classes": tokens.classes, "min_tokens": tokens.min_tokens, "vocabulary": tokens.vocabulary_size}
        if not isinstance(tokens, PushdownAutomaton):
            return figures | {"states": tokens.states, "table_bytes": tokens.table_bytes}
        table_bytes = sum(array.nbytes for array in tokens.arrays().values())
        return figures | {"states": tokens.tables.states, "table_bytes": table_bytes}


def _set_bits(words: np.ndarray, size: int) -> np.ndarray:
    """The ids whose bit is set in a mask: int64 [N]. The mask has 32-bit words."""
    return np.flatnonzero(np.unpackbits(words.reshape(-1).view(np.uint8), bitorder="little")[:size])


def _is_set(words: np.ndarray, token: int) -> bool:
    """Whether the bit of an id is set in a mask. The mask has 32-bit words."""
    return bool(words.reshape(-1)[token // _WORD_BITS] >> (token % _WORD_BITS) & 1)


def _new_mask(size: int) -> np.ndarray:
    return np.zeros(-(-size // _WORD_BITS), dtype=np.int32)


class _PeerEngine:
    """An engine with the vocabulary of a gzipped `tokenizer.json`."""

    def __init__(self, tokenizer: Path) -> None:
        self.vocabulary = read_vocabulary(tokenizer)
        self.eos, self._size = self.vocabulary.eos_ids[0], self.vocabulary.size

    def warm_up(self) -> None:
        self.compile(Expression("regex", WARM_UP))

    def compile(self, expression: Expression) -> Masks:
        raise NotImplementedError

    def figures(self, masks: Masks) -> Figures:
        return {}


class OutlinesMasks:
    def __init__(self, new_guide: Callable[[], Any], size: int) -> None:
        self._new_guide, self._mask = new_guide, _new_mask(size)
        self.restart()
        self.look_up()

    def restart(self) -> None:
        self._guide = self._new_guide()

    def look_up(self) -> None:
        self._guide.write_mask_into(self._mask.ctypes.data, self._mask.size, self._mask.itemsize)

    def allowed(self) -> np.ndarray:
        return _set_bits(self._mask, self._mask.size * _WORD_BITS)

    def allows(self, token: int) -> bool:
        return _is_set(self._mask, token)

    def advance(self, token: int) -> None:
        self._guide.advance(token, return_tokens=False)


class OutlinesCoreEngine(_PeerEngine):
    """outlines-core: `Index` on a regex that ends with \\z, without which it loses texts of the language."""

    def __init__(self, tokenizer: Path) -> None:
        import outlines_core

        super().__init__(tokenizer)
        self._library = outlines_core
        ids: dict[bytes, list[int]] = {}
        for token, text in enumerate(self.vocabulary.tokens):
            if text:
                ids.setdefault(text, []).append(token)
        self._token_ids = outlines_core.Vocabulary(self.eos, ids)

    def compile(self, expression: Expression) -> OutlinesMasks:
        pattern = expression.text
        if expression.kind == "json_schema":
            pattern = self._library.json_schema.build_regex_from_schema(pattern, "")
        index = self._library.Index(rf"(?:{pattern})\z", self._token_ids)
        return OutlinesMasks(lambda: self._library.Guide(index), self._size)


class XGrammarMasks:
    def __init__(self, new_matcher: Callable[[], Any], mask: Any, size: int) -> None:
        self._new_matcher, self._mask, self._size = new_matcher, mask, size
        self.restart()
        self.look_up()

    def restart(self) -> None:
        self._matcher = self._new_matcher()

    def look_up(self) -> None:
        self._is_limited = self._matcher.fill_next_token_bitmask(self._mask)

    def allowed(self) -> np.ndarray:
        if not self._is_limited:  # then every token is allowed, and the mask is not written
            return np.arange(self._size)
        return _set_bits(self._mask.numpy(), self._size)

    def allows(self, token: int) -> bool:
        return not self._is_limited or _is_set(self._mask.numpy(), token)

    def advance(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise ExpressionRefused(f"token {token} was allowed and then not accepted")


class XGrammarEngine(_PeerEngine):
    """XGrammar: one thread, without its cache, JSON without white space.

    Its strict mode would close every object and list that a schema leaves open.
    """

    def __init__(self, tokenizer: Path) -> None:
        import xgrammar

        super().__init__(tokenizer)
        self._library = xgrammar
        info = xgrammar.TokenizerInfo(
            [text or b"" for text in self.vocabulary.tokens], xgrammar.VocabType.RAW, vocab_size=self._size,
            stop_token_ids=list(self.vocabulary.eos_ids),
        )  # fmt: skip
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, expression: Expression) -> XGrammarMasks:
        if expression.kind == "json_schema":
            compiled = self._compiler.compile_json_schema(
                expression.text, any_whitespace=False, separators=_COMPACT, strict_mode=False
            )
        elif expression.kind == "lark":
            compiled = self._compiler.compile_lark(expression.text)
        elif expression.kind == "structural_tag":
            compiled = self._compiler.compile_structural_tag(expression.text)
        else:
            compiled = self._compiler.compile_regex(expression.text)
        mask = self._library.allocate_token_bitmask(1, self._size)
        return XGrammarMasks(lambda: self._library.GrammarMatcher(compiled), mask, self._size)


class LlguidanceMasks:
    """One matcher, which is reset between texts as a server would do."""

    def __init__(self, matcher: Any, size: int) -> None:
        if matcher.get_error():
            raise ExpressionRefused(matcher.get_error())
        self._matcher, self._mask = matcher, _new_mask(size)
        self.look_up()

    def restart(self) -> None:
        self._matcher.reset()

    def look_up(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)

    def allowed(self) -> np.ndarray:
        return _set_bits(self._mask, self._mask.size * _WORD_BITS)

    def allows(self, token: int) -> bool:
        return _is_set(self._mask, token)

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
        return LlguidanceMasks(matcher(self._tokenizer, grammar), self._tokenizer.vocab_size)


_ENGINES: dict[str, Callable[[Path], MaskEngine]] = {
    "ours": OurEngine,
    "outlines_core": OutlinesCoreEngine,
    "xgrammar": XGrammarEngine,
    "llguidance": LlguidanceEngine,
}


def load_engine(name: str, tokenizer: Path) -> MaskEngine:
    """An engine, warmed up, with the vocabulary of a gzipped `tokenizer.json`."""
    engine = _ENGINES[name](tokenizer)
    engine.warm_up()
    return engine
