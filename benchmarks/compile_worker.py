"""One cold compile by one engine, in a process of its own: reads a job from its first argument, prints one JSON line.

The vocabulary is loaded and another constraint compiled first, so that this constraint alone is measured.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.keyword_cases import ASCII, UNICODE, Concepts, Pattern
from benchmarks.measure import PeakMemory, limit_address_space, pin_to_one_core
from compiler.pipeline import compile_spec
from compiler.spec import KeywordsSpec
from compiler.tokenizer_json import vocabulary_from_tokenizer_json
from compiler.vocabulary import Vocabulary

END_OF_TEXT = "<|endoftext|>"
WARM_UP: Concepts = (("umbrella", "umbrellas"), ("violin",))


@dataclass(frozen=True, slots=True)
class Job:
    """One compile. engine: ours, or outlines-core with the pattern of that name (see `pattern_of`)."""

    engine: str
    tokenizer: str
    concepts: Concepts
    ordered: bool
    memory_bytes_max: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What one compile cost: wall milliseconds on one core, bytes, and counts (None where an engine has none)."""

    ms: float
    peak_bytes: int
    states: int | None = None
    classes: int | None = None
    table_bytes: int | None = None
    min_tokens: int | None = None
    pattern_chars: int | None = None


def load_vocabulary(path: Path) -> Vocabulary:
    text = gzip.decompress(path.read_bytes()).decode()
    added = json.loads(text)["added_tokens"]
    eos = next(token["id"] for token in added if token["content"] == END_OF_TEXT)
    return vocabulary_from_tokenizer_json(text, None, (eos,))


def ours(job: Job, vocabulary: Vocabulary) -> Figures:
    compile_spec(KeywordsSpec(WARM_UP, job.ordered), vocabulary)  # builds the tries, once for all constraints
    spec = KeywordsSpec(job.concepts, job.ordered)
    memory = PeakMemory()
    started = time.perf_counter()
    tokens = compile_spec(spec, vocabulary).tokens
    elapsed = time.perf_counter() - started
    return Figures(
        elapsed * 1e3, memory.growth(), tokens.states, tokens.classes, tokens.table_bytes, tokens.min_tokens
    )


def pattern_of(job: Job, concepts: Concepts) -> str:
    """The regex that stands for the constraint, closed with \\z: the engine drops words from an open one.

    equal    exactly our language
    unicode  the same words; in order means only that the concepts occur in this order somewhere
    ascii    as unicode, and only ASCII has word characters: a simpler language than ours
    """
    write = Pattern(ASCII if job.engine == "ascii" else UNICODE)
    if not job.ordered:
        regex = write.unordered(concepts)
    else:
        regex = write.ordered(concepts) if job.engine == "equal" else write.subsequence(concepts)
    return rf"(?:{regex})\z"


def outlines_core(job: Job, vocabulary: Vocabulary) -> Figures:
    import outlines_core as peer

    by_text: dict[bytes, list[int]] = {}
    for token, text in enumerate(vocabulary.tokens):
        if text:
            by_text.setdefault(text, []).append(token)
    entries = peer.Vocabulary(vocabulary.eos_ids[0], by_text)
    del by_text
    pattern = pattern_of(job, job.concepts)
    peer.Index(r"(?:umbrella|violin)\z", entries)
    memory = PeakMemory()
    started = time.perf_counter()
    index = peer.Index(pattern, entries)
    elapsed, grown = time.perf_counter() - started, memory.growth()
    del index
    return Figures(elapsed * 1e3, grown, pattern_chars=len(pattern))


def main() -> None:
    fields = json.loads(sys.argv[1])
    concepts = tuple(tuple(forms) for forms in fields.pop("concepts"))
    job = Job(concepts=concepts, **fields)
    pin_to_one_core()
    limit_address_space(job.memory_bytes_max)
    vocabulary = load_vocabulary(Path(job.tokenizer))
    figures = ours(job, vocabulary) if job.engine == "ours" else outlines_core(job, vocabulary)
    print(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
