"""Random constraints, vocabularies and budgets for the fuzz of the guarantee."""

from __future__ import annotations

import functools
import gzip
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from compiler.spec import KeywordsSpec, LtlfSpec, Proposition, RegexSpec, Spec
from compiler.tokenizer_json import vocabulary_from_tokenizer_json
from compiler.vocabulary import Vocabulary, byte_vocabulary
from decoding.model import HuggingFaceModel

BUILT_IN = Path(__file__).resolve().parents[1] / "app/models/captions"
ALPHABET = "ab cB.,é日😀1_-"
WORDS = ("a", "b", "ab", "ba", "c", "B", "é", "日", "a b", "b.", "a-b", "1", "😀", "ab c", "eos", "nomatch", "a'")
NAMES = ("p", "q", "r", "a", "b", "dot", "nomatch", "eos", '"a b"', '"é"')


def random_regex(draw: random.Random, depth: int = 3) -> str:
    """A pattern of Python's syntax whose language may well be empty or infinite."""
    if depth == 0 or draw.random() < 0.25:
        return draw.choice(
            (
                "a",
                "b",
                "c",
                "ab",
                "é",
                "日",
                "😀",
                ".",
                r"\w",
                r"\s",
                r"\d",
                "[ab]",
                "[^a]",
                "[a-c ]",
                " ",
                r"\.",
                "",
                r"[^\W\d]",
                "(?i:b)",
                r"\S",
                "[é日]",
                "[^é]",
                "(?s:.)",
                r"\W",
            )
        )
    below = functools.partial(random_regex, draw, depth - 1)
    shape = draw.randrange(8)
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
        return Proposition(
            regex=draw.choice((r"\d+", "[ab]+", r"a.*b", r"\w+\.", "(?i)b+", "é|日", r"[^\w\s]", "a(?: b)?"))
        )
    return Proposition(tuple(draw.sample(WORDS, draw.randint(1, 3))), None, draw.random() < 0.3)


def random_spec(draw: random.Random) -> Spec:
    kind = draw.random()
    if kind < 0.4:
        return RegexSpec(random_regex(draw), "strip" if draw.random() < 0.7 else "forbid")
    if kind < 0.65:
        concepts = tuple(tuple(draw.sample(WORDS, draw.randint(1, 2))) for _ in range(draw.randint(1, 3)))
        return KeywordsSpec(concepts, draw.random() < 0.5, draw.random() < 0.3)
    names = draw.sample(NAMES, draw.randint(1, 4))
    declared = tuple((name, random_proposition(draw)) for name in ("p", "q", "r", "dot") if draw.random() < 0.6)
    return LtlfSpec(random_formula(draw, names), declared)


def byte_level(draw: random.Random) -> Vocabulary:
    """All bytes, one EOS."""
    return byte_vocabulary()


def pieces(draw: random.Random) -> Vocabulary:
    """A few dozen pieces of text: parts of characters, several words at once, equal ones, gaps, several EOS ids."""
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
    texts = draw.sample(
        ("a", "b", " ", "c", ".", "ab", " a", "b ", "é", "B", "a b", "-", "1"), draw.randint(2, 5)
    )
    tokens: list[bytes | None] = [None, *(text.encode() for text in texts)]
    if draw.random() < 0.3:
        tokens += ["é".encode()[:1], "é".encode()[1:]]
    return Vocabulary(tuple(tokens), (0,))


def shared_folder() -> Path:
    return Path(os.environ.get("ABS_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@functools.cache
def real_vocabulary(name: str, size: int, eos: int) -> Vocabulary | None:
    """A real tokenizer's vocabulary, or None where the data is absent."""
    base = shared_folder()
    packed, plain = base / "data/tokenizers" / name / "tokenizer.json.gz", base / "models" / name / "tokenizer.json"
    if packed.exists():
        return vocabulary_from_tokenizer_json(gzip.decompress(packed.read_bytes()).decode(), size, (eos,))
    if plain.exists():
        return vocabulary_from_tokenizer_json(plain.read_text(), size, (eos,))
    return None


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
    """A trained model with its vocabulary: the built-in one, or a small one of the shared data."""
    shared = shared_folder() / "models"
    models = [(BUILT_IN, 4_096, 0), (shared / "stories260k", 512, 2), (shared / "tinystories-656k", 2_048, 2)]
    return _real_model(*draw.choice([model for model in models if model[0].exists()]))


def real(draw: random.Random) -> Vocabulary:
    """One of the real tokenizers, the small ones far more often; all bytes where the data is absent."""
    weights = (1, 1, 0.3, 0.2, 20, 20)
    return real_vocabulary(*draw.choices(REAL, weights)[0]) or byte_vocabulary()


VOCABULARIES: tuple[tuple[float, Callable[[random.Random], Vocabulary]], ...] = (
    (0.15, byte_level),
    (0.45, pieces),
    (0.3, few_pieces),
    (0.1, real),
)


def random_vocabulary(draw: random.Random) -> Vocabulary:
    make = draw.choices([make for _, make in VOCABULARIES], [weight for weight, _ in VOCABULARIES])[0]
    return make(draw)
