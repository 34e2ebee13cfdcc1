"""Random constraints, vocabularies and budgets for the fuzz of the guarantee."""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast
from unittest.mock import patch

from compiler.errors import SpecUnsatisfiable
from compiler.spec import (
    AllSpec,
    AnySpec,
    ChoiceSpec,
    DfaSpec,
    GrammarSpec,
    InfillSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    Part,
    Proposition,
    RegexSpec,
    SequencePart,
    SequenceSpec,
    Spec,
    TextPart,
    UserDfa,
    UserTransition,
    spec_from_json,
    spec_to_json,
)
from compiler.spec.types import LeadingSpace
from compiler.vocab import Vocabulary, byte_vocabulary, vocabulary_from_tokenizer_json
from decoding.model import HuggingFaceModel
from tests.references.sequences import random_free, random_part, spec_without_captures

BUILT_IN = Path(__file__).resolve().parents[2] / "app/models/captions"
ALPHABET = "ab cB.,é日😀1_-"
WORDS = ("a", "b", "ab", "ba", "c", "B", "é", "日", "a b", "b.", "a-b", "1", "😀", "ab c", "eos", "nomatch", "a'")
PATTERNS = (
    *("a", "b", "c", "ab", "é", "日", "😀", ".", r"\w", r"\s", r"\d", "[ab]", "[^a]", "[a-c ]", " ", r"\.", ""),
    *(r"[^\W\d]", "(?i:b)", r"\S", "[é日]", "[^é]", "(?s:.)", r"\W"),
)
PROPOSITIONS = (
    r"\d+", "[ab]+", r"a.*b", r"\w+\.", "(?i)b+", "é|日", r"[^\w\s]", "a(?: b)?", r"(?!b)\w+", r"a\b.+",
)  # fmt: skip
NAMES = ("p", "q", "r", "a", "b", "dot", "nomatch", "eos", '"a b"', '"é"')


def random_regex(draw: random.Random, depth: int = 3) -> str:
    """A pattern of Python's syntax. Its language may be empty or infinite."""
    if depth == 0 or draw.random() < 0.25:
        return draw.choice(PATTERNS)
    below = functools.partial(random_regex, draw, depth - 1)
    shape = draw.randrange(9)
    if shape == 8:
        return draw.choice((r"\b", r"\B", "(?m:^)", "(?m:$)", *_looks(draw, below()))) + below()
    if shape < 3:
        return below() + below()
    if shape == 3:
        return f"(?:{below()}|{below()})"
    if shape == 4:
        return f"(?:{below()}){draw.choice(('*', '+', '?', '{2}', '{1,3}', '*?', '{0,2}'))}"
    if shape == 5:
        return f"({below()}|{below()}|{below()})"
    if shape == 6:
        return draw.choice(("", "^", r"\A")) + below() + draw.choice(("", "$", r"\Z"))
    return below() + draw.choice((" ", ", ", ".")) + below()


def _looks(draw: random.Random, ahead: str) -> Iterator[str]:
    """Look-arounds. What is looked at behind has one width, as `re` demands."""
    yield from (f"(?={ahead})", f"(?!{ahead})")
    yield from (f"(?{look}{draw.choice(PATTERNS)})" for look in ("<=", "<!"))


def random_formula(draw: random.Random, names: Sequence[str], depth: int = 3) -> str:
    """A formula over the names, fully bracketed."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice((*names, *names, "true", "last", f"!{draw.choice(names)}"))
    below = functools.partial(random_formula, draw, names, depth - 1)
    operator = draw.choice(("!", "X", "WX", "F", "F", "G", "&", "&", "|", "->", "<->", "U", "R", "W", "M"))
    if operator in ("!", "X", "WX", "F", "G"):
        return f"{operator} ({below()})"
    return f"({below()}) {operator} ({below()})"


def random_proposition(draw: random.Random) -> Proposition:
    if draw.random() < 0.2:
        return Proposition(regex=draw.choice(PROPOSITIONS))
    return Proposition(tuple(draw.sample(WORDS, draw.randint(1, 3))), None, draw.random() < 0.3)


def random_spec(draw: random.Random, depth: int = 2) -> Spec:
    """A constraint of any form, or a combination of some."""
    if depth and draw.random() < 0.3:
        below = functools.partial(random_spec, draw, depth - 1)
        kind = draw.randrange(3)
        if kind == 2:
            return NotSpec(below())
        parts = tuple(below() for _ in range(draw.randint(1, 3)))
        return AllSpec(parts) if kind == 0 else AnySpec(parts)
    return draw.choices(_LEAVES, (30, 20, 12, 6, 6, 12, 8, 6, 10))[0](draw)


def random_stacked_spec(draw: random.Random) -> Spec:
    """A combination with a grammar or with an open schema."""
    stacked: Callable[[random.Random], Spec] = _grammar if draw.random() < 0.75 else _open_json
    if draw.random() < 0.3:
        stacked = functools.partial(_sequence, stacked=True)
    first, regular = stacked(draw), functools.partial(random_spec, draw, 1)
    shape = draw.randrange(12)
    if shape < 5:
        return AllSpec((first, *(regular() for _ in range(draw.randint(1, 2)))))
    if shape == 5:
        return AnySpec((first, regular()))
    if shape == 6:
        return NotSpec(first)
    if shape == 7:
        return AllSpec((NotSpec(first), regular()))
    if shape == 8:
        return AnySpec((AllSpec((first, regular())), AllSpec((draw.choice((first, stacked(draw))), regular()))))
    if shape == 9:
        return AllSpec((AnySpec((first, regular())), regular()))
    if shape == 10:
        return AnySpec((first, stacked(draw), NotSpec(regular())))
    return AllSpec((_open_json(draw), draw.choice((_open_json, _grammar))(draw)))


def _grammar(draw: random.Random) -> Spec:
    """A grammar of one to three rules over few characters."""
    names = ("root", "s", "t")[: draw.randint(1, 3)]

    def item(depth: int) -> str:
        kind = draw.random()
        if kind < 0.55 or depth > 2:
            classes = ("ab", "^a", "é日", "a-c", " .")
            return f'"{draw.choice(WORDS)}"' if draw.random() < 0.6 else f"[{draw.choice(classes)}]"
        return draw.choice(names) if kind < 0.85 else f"({alternatives(depth + 1)}){draw.choice('?*+')}"

    def alternatives(depth: int) -> str:
        return " | ".join(" ".join(item(depth) for _ in range(draw.randint(1, 3))) for _ in range(draw.randint(1, 3)))

    return GrammarSpec("\n".join(f"{name} ::= {alternatives(0)}" for name in names), "gbnf", _leading(draw))


def _open_json(draw: random.Random) -> Spec:
    schema = draw.choice((
        {}, {"type": "array"}, {"type": "object"}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        {"not": {"type": "object"}}, {"type": ["array", "boolean"], "minItems": 1}, {"required": ["a"]},
    ))  # fmt: skip
    fields = {"json_schema": schema, "whitespace": draw.choice(("spaced", "compact")), "leading_space": _leading(draw)}
    return cast(JsonSchemaSpec, spec_from_json(fields))


def _regex(draw: random.Random) -> Spec:
    return RegexSpec(random_regex(draw), _leading(draw))


def _ltlf(draw: random.Random) -> Spec:
    names = draw.sample(NAMES, draw.randint(1, 4))
    declarations = tuple((name, random_proposition(draw)) for name in ("p", "q", "r", "dot") if draw.random() < 0.6)
    return LtlfSpec(random_formula(draw, names), declarations)


def _keywords(draw: random.Random) -> Spec:
    concepts = tuple(tuple(draw.sample(WORDS, draw.randint(1, 2))) for _ in range(draw.randint(1, 3)))
    counts: tuple[tuple[int, int | None], ...] = ()
    if draw.random() < 0.4:
        least = [draw.randint(0, 2) for _ in concepts]
        counts = tuple((low, draw.choice((None, low + draw.randint(0, 2)))) for low in least)
    if draw.random() < 0.15:
        none = {"keywords": [list(forms) for forms in concepts], "none": True, "inflect": False}
        return spec_from_json(none)
    return KeywordsSpec(concepts, ordered=draw.random() < 0.5, case_sensitive=draw.random() < 0.3, counts=counts)


def _infill(draw: random.Random) -> Spec:
    custom_gaps = [f"<|infill:{pattern}|>" for pattern in ("[ab]+", "a{2}|é", r"\w", "")]
    gaps = ("<|infill_word|>", "<|infill_ngram|>", "<|infill_sentence|>", *custom_gaps)
    pieces = [draw.choice((*gaps, "a", "b ", ".", " ", "é", "<|", "(")) for _ in range(draw.randint(1, 4))]
    return InfillSpec("".join(pieces).replace("<|<|", "<|"), _leading(draw))


def _choice(draw: random.Random) -> Spec:
    texts = ["".join(draw.choice(ALPHABET) for _ in range(draw.randint(0, 4))) for _ in range(draw.randint(1, 5))]
    return ChoiceSpec(tuple(texts), _leading(draw))


def _length(draw: random.Random) -> Spec:
    low = draw.randint(0, 2)
    bounds = {"min_words": low, "max_words": low + draw.randint(0, 3), "max_chars": draw.randint(0, 9)}
    chosen_bounds = {name: value for name, value in bounds.items() if draw.random() < 0.5}
    sentences = None if chosen_bounds and draw.random() < 0.6 else (draw.randint(0, 1), draw.choice((None, 1, 2)))
    return LengthSpec(**chosen_bounds, sentences=sentences)


def _json(draw: random.Random) -> Spec:
    def schema(depth: int) -> object:
        kinds: list[object] = [
            {"type": "integer", "minimum": draw.randint(-3, 3), "maximum": draw.randint(4, 12)},
            {"type": "string", "maxLength": draw.randint(0, 3)},
            {"type": "string", "constraint": spec_to_json(draw.choice((_keywords, _regex, _length, _choice))(draw))},
            {"enum": ["a", 'é"', 1, None, [True]][: draw.randint(1, 5)]},
            {"type": "number", "exclusiveMinimum": 0, "maximum": draw.choice((0.5, 1, 2.25))},
            {"type": ["boolean", "null"]},
        ]
        if depth:
            names = draw.sample(("a", "b", "é"), draw.randint(0, 3))
            kinds += 2 * [
                {
                    "type": "object",
                    "properties": {name: schema(depth - 1) for name in names},
                    "required": draw.sample(names, draw.randint(0, len(names))),
                    "additionalProperties": draw.choice((False, False, {"type": "null"})),
                },
                {"type": "array", "items": schema(depth - 1), "maxItems": draw.randint(0, 3)},
            ]
            kinds.append({
                "type": "object", "propertyNames": {"enum": names or ["a"]}, "additionalProperties": schema(depth - 1),
                "minProperties": draw.randint(0, 2),
            })
        return draw.choice(kinds)

    whitespace, order = draw.choice(("spaced", "compact", "pretty")), draw.choice(("schema", "schema", "any"))
    fields = {"whitespace": whitespace, "property_order": order, "max_depth": 2}
    return cast(Spec, spec_from_json({"json_schema": schema(2), **fields}))


def _dfa(draw: random.Random) -> Spec:
    states = ("s", "t", "u")[: draw.randint(1, 3)]
    accepting = tuple(draw.sample(states, draw.randint(0, len(states))))
    if draw.random() < 0.5:
        guards = [
            UserTransition(state, draw.choice(states), when=guard) for state in states for guard in ("a & !b", "b")
        ]
        return DfaSpec(UserDfa(states[0], accepting, tuple(guards)), (("b", random_proposition(draw)),))
    texts = ("aé", "b日", " .c")
    moves = [UserTransition(state, draw.choice(states), text=text) for state in states for text in texts]
    transitions = tuple(move for move in moves if draw.random() < 0.7)
    mentioned = {states[0], *(name for move in transitions for name in (move.source, move.target))}
    return DfaSpec(
        UserDfa(states[0], tuple(name for name in accepting if name in mentioned), transitions), (), _leading(draw)
    )


def _sequence(draw: random.Random, stacked: bool = False) -> Spec:
    leaves_of = (_regex, _choice, _keywords, _infill, _json) + ((_grammar, _open_json) if stacked else ())

    def leaf() -> Part:
        kind = draw.random()
        if kind < 0.4:
            return draw.choice(("a", "b", ". ", "é", "", "ab"))
        return random_free(draw) if kind < 0.65 else TextPart(draw.choice(leaves_of)(draw))

    root = SequencePart(tuple(random_part(draw, 2, leaf) for _ in range(draw.randint(1, 3))))
    return spec_without_captures(SequenceSpec(root, _leading(draw)))


def _leading(draw: random.Random) -> LeadingSpace:
    return "strip" if draw.random() < 0.7 else "forbid"


_LEAVES: tuple[Callable[[random.Random], Spec], ...] = (
    _regex, _ltlf, _keywords, _infill, _choice, _length, _json, _dfa, _sequence,
)  # fmt: skip


@contextlib.contextmanager
def unexplained() -> Iterator[None]:
    """Refuses without a search for a conflict, which is dearer than compiling."""
    with patch("compiler.pipeline.explain_unsatisfiable", lambda *_: SpecUnsatisfiable("no text satisfies it")):
        yield


def pieces(draw: random.Random) -> Vocabulary:
    """A vocabulary of a few dozen pieces of text.

    It has parts of characters, several words at once, duplicates, gaps, and several EOS ids.
    """
    tokens: list[bytes | None] = [None]
    for _ in range(draw.randint(6, 40)):
        text = "".join(draw.choice(ALPHABET) for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 5)))).encode()
        if draw.random() < 0.2:
            cut = draw.randrange(len(text))
            text = text[cut : cut + draw.randint(1, 3)]
        tokens.append(text)
    if draw.random() < 0.5:
        tokens += [char.encode() for char in ALPHABET]
    if draw.random() < 0.3:
        tokens += [bytes([byte]) for byte in {*"é日😀".encode()}]
    tokens += [None] * draw.randint(0, 2)
    eos = [0] if draw.random() < 0.7 else [0, len(tokens)]
    if len(eos) == 2:
        tokens.append(None)
    return Vocabulary(tuple(token or None for token in tokens), tuple(eos))


def few_pieces(draw: random.Random) -> Vocabulary:
    """So few ids that all short texts can be written out."""
    texts = draw.sample(("a", "b", " ", "c", ".", "ab", " a", "b ", "é", "B", "a b", "-", "1"), draw.randint(2, 5))
    tokens: list[bytes | None] = [None, *(text.encode() for text in texts)]
    if draw.random() < 0.3:
        tokens += ["é".encode()[:1], "é".encode()[1:]]
    return Vocabulary(tuple(tokens), (0,))


def shared_folder() -> Path:
    return Path(os.environ.get("ABS_SHARED", Path(__file__).resolve().parents[3] / "shared"))


def real_tokenizer(name: str) -> str | None:
    """The tokenizer.json of a real tokenizer, or None without the data."""
    base = shared_folder()
    archive, file = base / "data/tokenizers" / name / "tokenizer.json.gz", base / "models" / name / "tokenizer.json"
    if archive.exists():
        return gzip.decompress(archive.read_bytes()).decode()
    return file.read_text() if file.exists() else None


@functools.cache
def real_vocabulary(name: str, size: int, eos: int) -> Vocabulary | None:
    """A real tokenizer's vocabulary, or None where the data is absent."""
    text = real_tokenizer(name)
    return None if text is None else vocabulary_from_tokenizer_json(text, size, (eos,))


REAL = (
    ("gpt2", 50_257, 50_256),
    ("mistral_v1_32k", 32_000, 2),
    ("cl100k_base", 100_277, 100_257),
    ("o200k_base", 200_019, 199_999),
    ("stories260k", 512, 2),
    ("tinystories-656k", 2_048, 2),
)


@functools.cache
def _real_model(folder: Path, size: int, eos: int) -> tuple[HuggingFaceModel, Vocabulary]:
    text = (folder / "tokenizer.json").read_text()
    return HuggingFaceModel.load(str(folder)), vocabulary_from_tokenizer_json(text, size, (eos,))


def open_real_model(draw: random.Random) -> tuple[HuggingFaceModel, Vocabulary]:
    """A trained model with its vocabulary, built-in or of the shared data."""
    shared = shared_folder() / "models"
    models = [(BUILT_IN, 4_096, 0), (shared / "stories260k", 512, 2), (shared / "tinystories-656k", 2_048, 2)]
    return _real_model(*draw.choice([model for model in models if model[0].exists()]))


def real(draw: random.Random) -> Vocabulary:
    """A real tokenizer, more often a small one. Without the data it is the vocabulary of all bytes."""
    weights = (1, 1, 0.3, 0.2, 20, 20)
    return real_vocabulary(*draw.choices(REAL, weights)[0]) or byte_vocabulary()


def random_vocabulary(draw: random.Random) -> Vocabulary:
    makers = (lambda _: byte_vocabulary(), pieces, few_pieces, real)
    return draw.choices(makers, (0.15, 0.45, 0.3, 0.1))[0](draw)
