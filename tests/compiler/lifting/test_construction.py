"""Compares the lift with the transducer for every token and every state."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from compiler.artifact import CompiledConstraint
from compiler.automata import DEAD, NO_END
from compiler.errors import LimitExceeded, SpecError
from compiler.lifting import UNREACHABLE, TokenAutomaton, from_table, lift
from compiler.lifting.token_automaton import entry_rows
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.spec import AllSpec, KeywordsSpec, LengthSpec, LtlfSpec, RegexSpec, Spec
from compiler.vocab import Vocabulary, byte_vocabulary
from tests.references.random_constraints import REAL, pieces, random_spec, real_vocabulary, unexplained
from tests.servers.cluster import FULL

SPECS: tuple[Spec, ...] = (
    LtlfSpec("F dog & G(dog -> X !cat) & F dot"),
    LtlfSpec("F(é日) & G !ab"),
    KeywordsSpec((("a", "ab"), ("b",)), ordered=True),
    RegexSpec(r"(?:a|é|日|😀)*\.?"),
    RegexSpec(r"\w+(?: \w+){0,3}"),
)


def pair_after(
    compiled: CompiledConstraint, transducer_state: int, letter_state: int, token: bytes
) -> tuple[int, int] | None:
    """The pair of states after a token's bytes; None if dead."""
    text = compiled.text
    for byte in token:
        transducer_state, letters = text.transducer.step(transducer_state, byte)
        letter_state = text.letters.run(letters, letter_state)
    return None if transducer_state == DEAD else (transducer_state, letter_state)


def check_state(
    compiled: CompiledConstraint, vocabulary: Vocabulary, transducer_state: int, letter_state: int, ids: Iterable[int]
) -> None:
    automaton, transducer = compiled.tokens, compiled.text.transducer
    shift = int(transducer_state >= transducer.boundary_states)  # the state after EOS stands between the two groups
    number = (transducer_state + shift) * automaton.letter_states + letter_state
    successors = automaton.successors(number)
    for token in ids:
        text = vocabulary.tokens[token]
        if text is None:
            continue
        target = int(successors[automaton.token_class[token]])
        expected = pair_after(compiled, transducer_state, letter_state, text)
        if expected is None:
            assert automaton.distance[target] == UNREACHABLE
        elif automaton.distance[target] != UNREACHABLE:
            after, letters = expected
            assert divmod(target, automaton.letter_states) == (
                after + int(after >= transducer.boundary_states),
                letters,
            )
    end_state = int(successors[automaton.token_class[vocabulary.eos_ids[0]]])
    final_output = int(transducer.final_output[transducer_state])
    agrees = (
        final_output != NO_END
        and compiled.text.letters.accepting[compiled.text.letters.run(transducer.outputs[final_output], letter_state)]
    )
    assert (automaton.distance[end_state] == 0) == bool(agrees)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_token_does_what_its_bytes_do(spec: Spec) -> None:
    vocabulary = pieces(random.Random(5))
    words = (word.encode() for word in ("dog", " dog", "cat.", "ab é日", "b.a"))
    larger_vocabulary = Vocabulary(
        (*vocabulary.tokens, *(bytes([byte]) for byte in range(256)), *words), vocabulary.eos_ids
    )
    compiled = compile_spec(spec, larger_vocabulary)
    draw = random.Random(9)
    transducer_states = range(1, compiled.text.transducer.states)
    for transducer_state in draw.sample(transducer_states, min(60, len(transducer_states))):
        for letter_state in range(compiled.tokens.letter_states):
            check_state(compiled, larger_vocabulary, transducer_state, letter_state, range(larger_vocabulary.size))


@pytest.mark.parametrize("name, size, eos", REAL, ids=[name for name, _, _ in REAL])
@pytest.mark.sample(3)
def test_real_tokens_do_what_their_bytes_do(name: str, size: int, eos: int, shared: Path) -> None:
    vocabulary = real_vocabulary(name, size, eos)
    assert vocabulary is not None
    compiled = compile_spec(LtlfSpec("F dog & G(dog -> X !cat)"), vocabulary)
    draw = random.Random(2)
    for transducer_state in draw.sample(range(1, compiled.text.transducer.states), 4):
        letter_state = draw.randrange(compiled.tokens.letter_states)
        check_state(compiled, vocabulary, transducer_state, letter_state, draw.sample(range(size), min(size, 20_000)))


def test_ids_that_never_occur_are_dead_everywhere() -> None:
    vocabulary = Vocabulary((None, b"a", None, b"b", None), (0,))
    automaton = compile_spec(RegexSpec("[ab]*"), vocabulary).tokens
    for state in range(automaton.states):
        for token in (2, 4):
            assert automaton.distance[automaton.advance(state, token)] == UNREACHABLE


def test_all_eos_ids_share_one_class_that_ends_the_text() -> None:
    vocabulary = Vocabulary((None, b"a", None, b"b"), (0, 2))
    automaton = compile_spec(RegexSpec("a"), vocabulary).tokens
    assert automaton.token_class[0] == automaton.token_class[2]
    end_state = automaton.advance(automaton.advance(automaton.start, 1), 2)
    assert automaton.distance[end_state] == 0
    assert automaton.advance(end_state, 0) == end_state
    assert automaton.distance[automaton.advance(end_state, 1)] == UNREACHABLE


def test_ids_of_equal_bytes_share_a_class() -> None:
    automaton = compile_spec(RegexSpec("a+b"), Vocabulary((None, b"a", b"b", b"a"), (0,))).tokens
    assert automaton.token_class[1] == automaton.token_class[3] != automaton.token_class[2]


def test_hashes_that_collide_do_not_merge_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RegexSpec("(?:ab|ba|é)*")
    honest = compile_spec(spec, byte_vocabulary()).tokens
    monkeypatch.setattr("compiler.lifting.rows.hash_rows", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    colliding = compile_spec(spec, byte_vocabulary()).tokens
    assert np.array_equal(honest.token_class, colliding.token_class)
    assert np.array_equal(honest.distance, colliding.distance)


def test_sparse_and_dense_states_spell_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary((b"a", b"b", b"ab", b"ba", "é".encode(), b"aba", b"bb", b"aab", None), (8,))
    draw, checked = random.Random(5), 0
    while checked < (30 if FULL else 12):
        spec = random_spec(draw)
        try:
            with unexplained(), monkeypatch.context() as patch:
                patch.setattr("compiler.lifting.sparse_walk._NARROW_MIN", checked % 2 * 100)
                sparse = compile_spec(spec, vocabulary).tokens
        except (SpecError, LimitExceeded):
            continue
        with monkeypatch.context() as patch:
            for limit in ("sparse_walk.TOKENS_MAX", "construction._ENTRIES_MAX"):
                patch.setattr(f"compiler.lifting.{limit}", 0)
            dense = compile_spec(spec, vocabulary).tokens
        assert len(dense.edge_boundary) >= len(sparse.edge_boundary)
        assert np.array_equal(sparse.distance, dense.distance)
        for state in range(sparse.states):
            pair = [each.successors(state)[each.token_class] for each in (sparse, dense)]
            assert np.array_equal(*pair)
        checked += 1


PLAIN = (
    r'"[^"\\\x00-\x1f]*"', r'"(?:[^"\\\x00-\x1f]|\\"){2,4}"(?:,")?', "[^\n]{0,5}", "[^\n]{3}é", "[^b]*x", "[^é]*x",
    r"(?s).*",
)


@pytest.mark.parametrize("pattern", PLAIN)
@pytest.mark.parametrize("longest", [None, 9])
def test_plain_characters_that_act_alike_change_no_edge(
    pattern: str, longest: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    texts = {"".join(draw.choices('abx"\\\n ~é日😀', k=draw.choice((1, 1, 2, 3, 6)))).encode() for _ in range(300)}
    tokens = sorted(texts | {text[draw.randrange(3) :][: draw.choice((1, 2, 9))] for text in texts} - {b""})
    vocabulary = Vocabulary((*tokens, None), (len(tokens),))
    spec: Spec = RegexSpec(pattern)
    if longest is not None:  # letters count the characters
        spec = AllSpec((spec, LengthSpec(max_chars=longest)))
    shared = compile_spec(spec, vocabulary).tokens
    monkeypatch.setattr("compiler.lifting.sparse_walk.plain_states", lambda *given: (np.zeros_like(given[-1]),) * 2)
    monkeypatch.setattr("compiler.lifting.sparse_walk._DIFFERENCES_MAX", 0)
    apart = compile_spec(spec, vocabulary).tokens
    assert np.array_equal(shared.distance, apart.distance)
    for state in range(shared.states):
        assert np.array_equal(*(each.successors(state)[each.token_class] for each in (shared, apart)))


def test_a_walk_whose_tables_outgrow_the_limit_is_refused() -> None:
    compiled = compile_spec(RegexSpec("[a-z]{1,40}(?:x|y)[a-z]{3}"), byte_vocabulary())
    alphabet = [bytes([a, b]) for a in range(97, 123) for b in range(97, 123)]
    with pytest.raises(LimitExceeded, match="table_bytes_max"):
        lift(
            compiled.text.transducer,
            compiled.text.letters,
            Vocabulary((None, *alphabet), (0,)),
            ResourceGuard(Limits(table_bytes_max=4_000)),
        )


def test_a_column_that_no_id_reads_shortens_no_distance() -> None:
    table = np.array([[0, 1], [1, 1]])
    assert from_table(np.array([0, 1, 0]), table, np.array([False, True]), 0, eos_ids=(2,)).min_tokens == 2
    assert from_table(np.array([0, 0, 0]), table, np.array([False, True]), 0, eos_ids=(2,)).min_tokens == UNREACHABLE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_class", np.array([0, 9], np.int32)),
        ("edge_target", np.array([0, 1, 7], np.int32)),
        ("start", 99),
        ("distance", np.zeros(3, np.int32)),
        ("eos_ids", ()),
        ("eos_ids", (5,)),
        ("function", np.array([[3]], np.int32)),
        ("dense_row", np.array([0, 1, 9], np.int32)),
        ("dense_row", np.array([1, 1, 2], np.int32)),
        ("sparse_edge", np.zeros(1, np.int32)),
        ("sparse_first", np.zeros(2, np.int64)),
        ("sparse_first", np.array([0, 0, 1, 0])),
        ("sparse_first", np.array([0, 0, 0, 1])),
    ],
)
def test_an_inconsistent_automaton_cannot_be_constructed(field: str, value: object) -> None:
    automaton = from_table(np.array([0, 1]), np.array([[0, 0]]), np.array([True]), 0, eos_ids=(1,))
    fields = {name: getattr(automaton, name) for name in TokenAutomaton.__slots__}
    TokenAutomaton(**fields)
    with pytest.raises(ValueError, match=r"index|state|distance|eos|\["):
        TokenAutomaton(**{**fields, field: value})


@pytest.mark.parametrize("largest", [1, 127, 128, 32_767, 32_768])
def test_listed_classes_keep_their_numbers_at_any_width(largest: int) -> None:
    numbers = np.array([largest - 1, largest])
    first, classes, edges = entry_rows(np.array([1, 1]), numbers, np.array([5, 6], dtype=np.int16), states=3)
    assert first.tolist() == [0, 0, 2, 2] and classes.tolist() == [largest - 1, largest] and edges.tolist() == [5, 6]
