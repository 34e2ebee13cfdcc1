"""Fuzzes the guarantee with random constraints, vocabularies, budgets and decoders.

    python -m tests.long.fuzz --cases 100000 --seed 1 --jobs 2
    python -m tests.long.fuzz --stacked --cases 10000: combinations with a grammar or with nested JSON
    python -m tests.long.fuzz --apart --cases 10000: combinations whose parts are followed side by side

Every answer must satisfy its constraint by `tests.references.text` and fit its budget. Every refusal must be right,
which enumeration of all short texts of the small vocabularies decides. d(start) must be the least budget. A failure
prints its seed.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import multiprocessing
import random
import re
import signal
import sys
import time
import warnings
from functools import partial
from typing import Any

import torch

from compiler.artifact import CompiledConstraint
from compiler.engines import NATIVE
from compiler.errors import (
    BudgetTooSmall,
    CompileError,
    LimitExceeded,
    SpecError,
    SpecUnsatisfiable,
    SpecUnspellable,
    SpecUnsupported,
    Undecided,
)
from compiler.forms import value_violation
from compiler.lifting import UNREACHABLE
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.products import LazyProduct
from compiler.pushdown import Configurations
from compiler.spec import GrammarSpec, JsonSchemaSpec, RegexSpec, Spec, leaves
from compiler.text import answer_text, check_text
from compiler.vocab import Vocabulary, byte_vocabulary
from decoding.options import SearchOptions
from decoding.prepared_constraint import Automaton, Start, host_states
from decoding.search import generate
from tests.fake_models import HashModel
from tests.long.fuzz_paths import PATHS, Case, text_bytes
from tests.references.apart import taken_apart
from tests.references.random_constraints import (
    ALPHABET,
    WORDS,
    open_real_model,
    random_spec,
    random_stacked_spec,
    random_vocabulary,
)
from tests.references.text import satisfies, strips_a_space

LIMITS = Limits(compile_s_max=60.0)  # a limit that strikes is a failure, but for dfa_states_max
BYTES = byte_vocabulary()
REFUSED = (
    "two grammars in a conjunction", "negation of an ambiguous grammar", "left recursion",
    "negation of an ambiguous sequence", "sequence of tokens or grammars", "grammar in labels or a schema",
)  # fmt: skip
REAL_MODEL_SHARE = 0.03  # a step of a real model takes many times as long
FULL_SCOPE_SHARE = 0.15
REFERENCE_S_MAX = 10.0
WRITTEN_OUT_MAX = 3_000  # texts of a small vocabulary that one case writes out


class Broken(AssertionError):
    """The guarantee does not hold."""


class ReferenceTooSlow(Exception):
    """Python's `re` backtracks for too long on a random pattern. The case is counted as unchecked."""


def _raise_too_slow(*_: object) -> None:
    raise ReferenceTooSlow


def _satisfies(spec: Spec, text: str) -> bool:
    """The verdict of the reference, within REFERENCE_S_MAX seconds."""
    old_handler = signal.signal(signal.SIGALRM, _raise_too_slow)
    signal.setitimer(signal.ITIMER_REAL, REFERENCE_S_MAX)
    try:
        return satisfies(spec, text)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)


def run_case(seed: int, stacked: bool = False) -> str:
    """One case; returns what became of it ("answered", "refused: ..."). Raises Broken where the guarantee fails."""
    draw = random.Random(seed)
    spec = random_stacked_spec(draw) if stacked else random_spec(draw)
    real = open_real_model(draw) if draw.random() < REAL_MODEL_SHARE else None
    vocabulary = real[1] if real else random_vocabulary(draw)
    try:
        compiled = compile_spec(spec, vocabulary, LIMITS)
    except SpecUnsatisfiable as error:
        _confirm_unsatisfiable(spec, draw)
        return type(error).__name__
    except SpecUnspellable as error:
        _confirm_nothing_shorter(spec, vocabulary, None, draw)
        _confirm_satisfiable(spec)
        return type(error).__name__
    except Undecided as error:
        _confirm_nothing_shorter(spec, vocabulary, error.min_tokens_at_least, draw)
        return type(error).__name__
    except SpecError as error:
        _confirm_refused_by_python(spec, error)
        return type(error).__name__
    except LimitExceeded as error:  # three gaps side by side need more states than the limit: 1 case of 20,000
        # A schema's bounds may leave out all texts of a combination. Products with very ambiguous grammars are large,
        # and so are three levels of JSON beside other parts.
        of_stacks = ("exit_distances_max", "table_bytes_max", "compile_s_max") if stacked else ()
        if error.limit not in ("dfa_states_max", "max_depth", "integer_digits_max", *of_stacks):
            raise
        return f"over {error.limit}"
    model = real[0] if real else _fake_model(vocabulary, draw)
    if isinstance(compiled.tokens, LazyProduct):
        at_least, known = compiled.tokens.min_tokens_at_least, min(compiled.tokens.min_tokens, 64)
        budget = draw.choice((at_least - 1, at_least, known - 1, known, known + 1, known + 12))
        return _run_product(spec, compiled, model, vocabulary, budget, draw)
    _confirm_nothing_shorter(spec, vocabulary, compiled.tokens.min_tokens, draw)
    prefix, start = _random_prefix(spec, vocabulary, compiled.tokens, draw)
    states, state = host_states(compiled.tokens, start)
    least = states.distance_of(state)
    if least == UNREACHABLE:
        _confirm_nothing_shorter(spec, vocabulary, None, draw, prefix)
        return "prompt refused"
    budget = max(1, least + draw.choice((-1, 0, 0, 1, 2, 5, 12)))
    case = Case(vocabulary, compiled.tokens, model, (vocabulary.eos_ids[0], *prefix), budget, start)
    outcome = _generate(spec, compiled, case, prefix, draw)
    return f"{outcome} by a real model" if real else outcome


def run_apart(seed: int) -> str:
    """One combination, whose parts are followed side by side."""
    draw = random.Random(seed)
    spec = random_stacked_spec(draw) if draw.random() < 0.4 else random_spec(draw, 3)
    vocabulary = random_vocabulary(draw)
    try:
        whole = compile_spec(spec, vocabulary, LIMITS)
    except CompileError as error:  # the other runs judge it
        return type(error).__name__
    try:
        apart = taken_apart(whole, vocabulary, draw, ResourceGuard(LIMITS))
    except SpecUnsatisfiable as error:
        raise Broken(f"{spec} has texts") from error
    if apart is None:
        return "no parts"
    tokens, least = apart.tokens, whole.tokens.min_tokens
    assert isinstance(tokens, LazyProduct)
    at_least, known = tokens.min_tokens_at_least, min(tokens.min_tokens, least + 8)
    if at_least > least:
        raise Broken(f"{spec} takes {least} tokens, and is said to take at least {at_least}")
    budget = draw.choice((at_least - 1, least - 1, least, known - 1, known, known + 1, known + 12))
    return _run_product(spec, apart, _fake_model(vocabulary, draw), vocabulary, budget, draw)


def _run_product(
    spec: Spec, compiled: CompiledConstraint, model: Any, vocabulary: Vocabulary, budget: int, draw: random.Random
) -> str:
    """A combination whose parts are followed side by side. Its least budget is known within an interval."""
    assert isinstance(compiled.tokens, LazyProduct)
    at_least, budget = compiled.tokens.min_tokens_at_least, max(1, budget)
    _confirm_nothing_shorter(spec, vocabulary, at_least, draw)
    case = Case(vocabulary, compiled.tokens, model, (vocabulary.eos_ids[0],), budget, None)
    try:
        return _generate(spec, compiled, case, (), draw, at_least)
    except Undecided as error:
        if not at_least <= budget < (error.min_tokens or UNREACHABLE):
            raise Broken(f"budget {budget} is undecided for {spec}: {error}") from error
        return "undecided"


def _random_prefix(
    spec: Spec, vocabulary: Vocabulary, automaton: Automaton, draw: random.Random
) -> tuple[tuple[int, ...], Start | None]:
    """A few tokens of prompt that belong to the text, usually none. The second value is the state after them."""
    states, state = host_states(automaton, None)
    prefix = list[int]()
    if draw.random() < FULL_SCOPE_SHARE:
        spelled = [id for id, token in enumerate(vocabulary.tokens) if token and id not in vocabulary.eos_ids]
        for _ in range(draw.randint(1, 4)):
            token = draw.choice(spelled)
            next_state = states.advance(state, token)
            dead = states.distance_of(next_state) == UNREACHABLE
            # A dead state of a pushdown automaton has no stack to start from.
            if dead and (isinstance(states, Configurations) or draw.random() < 0.8):
                continue
            state = next_state
            prefix.append(token)
    return tuple(prefix), states.stacks_of(state) if isinstance(states, Configurations) else state


def _fake_model(vocabulary: Vocabulary, draw: random.Random) -> HashModel:
    return HashModel(
        vocabulary.size,
        vocabulary.eos_ids,
        seed=draw.randrange(2**30),
        levels=draw.choice((0, 0, 3)),
        memory=draw.choice((None, 1)),
        zeros=draw.choice((0.0, 0.0, 0.5)),
        spread=draw.choice((1.0, 3.0, 30.0)),
    )


def _generate(
    spec: Spec, compiled: CompiledConstraint, case: Case, prefix: tuple[int, ...], draw: random.Random,
    at_least: int | None = None,
) -> str:
    """Decodes in one way. `at_least` stands in place of the least budget where that is not known."""
    least = case.least if at_least is None else at_least
    name = draw.choices(list(PATHS), [share for _, share in PATHS.values()])[0]
    try:
        result = PATHS[name][0](case, draw)
    except BudgetTooSmall as error:
        if case.budget >= least or (error.min_tokens_at_least or error.min_tokens) != least:
            raise Broken(f"budget {case.budget} refused, least is {least}") from error
        return "budget refused"
    if case.budget < least or not result:
        raise Broken(f"budget {case.budget} answered, least is {least}")
    for tokens in result:
        _judge(spec, compiled, case, prefix, tokens)
    return f"answered ({name})"


def _judge(
    spec: Spec, compiled: CompiledConstraint, case: Case, prefix: tuple[int, ...], tokens: tuple[int, ...]
) -> None:
    """Checks the answer by its text, with the prompt if that counts."""
    *text_tokens, end = tokens
    eos_ids = case.vocabulary.eos_ids
    if len(tokens) > case.budget or end not in eos_ids or set(text_tokens) & set(eos_ids):
        raise Broken(f"tokens {tokens} for a budget of {case.budget}")
    raw = text_bytes(case.vocabulary, (*prefix, *text_tokens)).decode()
    text = answer_text(compiled.text, raw)
    optional = strips_a_space(spec)
    if text != raw and not (optional and raw == " " + text):
        raise Broken(f"the answer {text!r} is not what was generated, {raw!r}")
    if not _satisfies(spec, text):
        raise Broken(f"the text {text!r} violates {spec}")
    if not check_text(compiled.text, text).satisfied:
        raise Broken(f"check_text rejects the good text {text!r} of {spec}")
    if isinstance(spec, JsonSchemaSpec) and not value_passes(spec, text, LIMITS):
        raise Broken(f"the value of {text!r} is called invalid for {spec}")


def value_passes(spec: JsonSchemaSpec, text: str, limits: Limits) -> bool:
    """Whether a text passes the check of its value."""
    return value_violation(spec, text, NATIVE, ResourceGuard(limits)) is None


def _allowed(spec: Spec, raw: bytes) -> bool:
    """Whether a generated text is acceptable, apart from its optional leading space."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return False
    # Where texts of a pushdown machine begin with a space, it reads no further one.
    stacked = any(isinstance(leaf, GrammarSpec | JsonSchemaSpec) and _is_open(leaf) for leaf in leaves(spec))
    has_space = strips_a_space(spec) and text.startswith(" ") and not stacked
    return _satisfies(spec, text) or (has_space and _satisfies(spec, text[1:]))


def _is_open(leaf: GrammarSpec | JsonSchemaSpec) -> bool:
    return isinstance(leaf, GrammarSpec) or leaf.max_depth is None


def _confirm_nothing_shorter(
    spec: Spec, vocabulary: Vocabulary, least: int | None, draw: random.Random, prefix: tuple[int, ...] = ()
) -> None:
    """Confirms that no text of fewer than `least` tokens is acceptable.

    Only enumerable texts are checked; `least` None means no text at all.

    prefix  of every text
    """
    prefix_bytes = text_bytes(vocabulary, prefix)
    ids = [token for token in vocabulary.tokens if token]
    for length in range(0, 6):
        if least is not None and length + 1 >= least:
            return
        if len(ids) ** length <= WRITTEN_OUT_MAX:
            texts = map(b"".join, itertools.product(ids, repeat=length))
        else:
            texts = (b"".join(draw.choices(ids, k=length)) for _ in range(50))
        for raw in texts:
            if _allowed(spec, prefix_bytes + raw):
                raise Broken(
                    f"{prefix_bytes + raw!r} satisfies {spec} in {length + 1} tokens, the compiler says {least}"
                )


def _confirm_unsatisfiable(spec: Spec, draw: random.Random) -> None:
    """Confirms on random texts that none satisfies the constraint. Their characters are those of the constraint."""
    for _ in range(200):
        text = "".join(draw.choice((*ALPHABET, *WORDS)) for _ in range(draw.randint(0, 6)))
        if _satisfies(spec, text):
            raise Broken(f"{text!r} satisfies {spec}, which is called unsatisfiable")


def _confirm_satisfiable(spec: Spec) -> None:
    """Some text satisfies: the vocabulary alone is to blame."""
    compiled = compile_spec(spec, BYTES, LIMITS)
    tokens, model = compiled.tokens, HashModel(BYTES.size, BYTES.eos_ids)
    case = Case(BYTES, tokens, model, (256,), tokens.min_tokens, None)
    answer = generate(model, case.prompt_ids, tokens, SearchOptions(case.budget, beams=1))[0]
    _judge(spec, compiled, case, (), answer.tokens)


def _confirm_refused_by_python(spec: Spec, error: SpecError) -> None:
    """The constraints are well formed, but for what `re` or stacks refuse."""
    if isinstance(error, SpecUnsupported) and error.construct in REFUSED:
        return
    for leaf in leaves(spec):
        try:
            re.compile(leaf.pattern if isinstance(leaf, RegexSpec) else "")
        except re.error:
            return
    raise Broken(f"{spec} is refused: {error}") from error


def _run(seed: int, stacked: bool, apart: bool) -> tuple[int, str, str]:
    warnings.simplefilter("ignore", FutureWarning)
    torch.set_num_threads(1)
    try:
        return seed, run_apart(seed) if apart else run_case(seed, stacked), ""
    except ReferenceTooSlow:
        return seed, "not judged", ""
    except Exception as error:  # whatever it is, the seed must be known
        return seed, "FAILED", f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--stacked", action="store_true")
    parser.add_argument("--apart", action="store_true")
    args = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    first = args.seed * 10_000_000
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        run = partial(_run, stacked=args.stacked, apart=args.apart)
        cases = pool.imap_unordered(run, range(first, first + args.cases), chunksize=50)
        for number, (seed, outcome, message) in enumerate(cases, 1):
            outcomes[outcome] += 1
            if message:
                print(f"seed {seed}: {message}", flush=True)
            if number % 5_000 == 0:
                print(f"{number} cases, {time.monotonic() - start:.0f} s: {dict(outcomes)}", flush=True)
    print(f"{args.cases} cases from seed {first}, {time.monotonic() - start:.0f} s: {dict(outcomes)}")
    return 1 if outcomes["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
