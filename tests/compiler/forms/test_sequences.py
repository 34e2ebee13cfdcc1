"""Sequences against brute force over all short token sequences."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from compiler.codec import decode, encode
from compiler.errors import (
    CompileError,
    LimitExceeded,
    SpecSyntaxError,
    SpecUnsatisfiable,
    SpecUnspellable,
    SpecUnsupported,
)
from compiler.lifting import UNREACHABLE
from compiler.limits import Limits
from compiler.pipeline import compile_spec, compile_text
from compiler.products import LazyProduct
from compiler.spec import Part, SequencePart, SequenceSpec, Spec, TokenPart, spec_from_json, spec_to_json
from compiler.text import (
    CapturedSpan,
    PushdownText,
    TextAutomaton,
    WrittenText,
    check_text,
    read_prefix,
    written_text,
)
from compiler.vocab import Vocabulary, byte_vocabulary
from decoding.prepared_constraint import host_states
from tests.references.sequences import Matcher, atoms_of_text, atoms_of_tokens, random_free, random_part
from tests.references.text import satisfies

EOS, TAG, OTHER = 10, 13, 14
PIECES = (
    b"a", b"b", b".", b"ab", b"a.", b"ba.", b"\xc3", b"\xa9", b"b\xc3", b"<t>", None, b"\xfe", b"\xff", None, None,
)  # fmt: skip
VOCABULARY = Vocabulary(PIECES, (EOS,), {"<t>": TAG, "<u>": OTHER, "</s>": EOS})
NAMES = {TAG: "<t>", OTHER: "<u>"}
NEVER = (None, b"\xfe", b"\xff")
WRITTEN = tuple(number for number, piece in enumerate(PIECES) if number in NAMES or piece not in NEVER)
CONSTRAINTS = (
    {"regex": "a*"}, {"regex": "(ab)+"}, {"choice": ["a", "ab", ""]}, {"json_schema": {"enum": ["a", 1]}},
    {"keywords": ["a"]}, {"max_words": 1}, {"not": {"regex": "a"}}, {"regex": "é?"},
    {"grammar": 'root ::= "a" root "b" | "."', "syntax": "gbnf"},
)  # fmt: skip
LONGEST = 3
OVER_TEXTS = byte_vocabulary(checks_texts=True)


def sequence(*parts: object, **options: object) -> SequenceSpec:
    spec = spec_from_json({"sequence": list(parts), **options})
    assert isinstance(spec, SequenceSpec)
    return spec


def random_sequence(draw: random.Random) -> SequenceSpec:
    def leaf() -> Part:
        kind = draw.randrange(6)
        if kind == 0:
            return draw.choice(("a", "b", ".", "ab", "", "é", "<"))
        if kind == 1:
            return TokenPart(draw.choice(("<t>", "<u>")))
        if kind < 4:
            free = random_free(draw)
            return replace(free, max_tokens=draw.choice((None, 1, 2, 3)))
        return sequence(draw.choice(CONSTRAINTS)).root.parts[0]

    parts = tuple(random_part(draw, 2, leaf) for _ in range(draw.randint(1, 3)))
    return SequenceSpec(SequencePart(parts), "forbid")


def text_of(ids: Sequence[int]) -> str | None:
    """What ids are decoded to. None where the bytes are no text."""
    try:
        return b"".join(NAMES[each].encode() if each in NAMES else PIECES[each] or b"" for each in ids).decode()
    except UnicodeDecodeError:
        return None


def is_text(spec: SequenceSpec, ids: Sequence[int]) -> bool:
    atoms = atoms_of_tokens([NAMES.get(each) or PIECES[each] or b"" for each in ids])
    return atoms is not None and Matcher(atoms, True, satisfies).matches(spec.root)


def all_ids() -> list[tuple[int, ...]]:
    return [ids for length in range(LONGEST + 1) for ids in itertools.product(WRITTEN, repeat=length)]


def distance_function(spec: Spec) -> tuple[Callable[[Sequence[int]], int], TextAutomaton | PushdownText]:
    """The distance after some ids, and the automaton over texts."""
    compiled = compile_spec(spec, VOCABULARY)
    assert not isinstance(compiled.tokens, LazyProduct) and isinstance(compiled.text, TextAutomaton | PushdownText)
    states, start = host_states(compiled.tokens, None)

    def distance(ids: Sequence[int]) -> int:
        state = start
        for each in ids:
            state = states.advance(state, each)
        return states.distance_of(state)

    return distance, compiled.text


def assert_distances(spec: SequenceSpec, constraint: Spec) -> None:
    """Checks distances after all short ids, and verdicts on texts."""
    accepted = [ids for ids in all_ids() if is_text(spec, ids)]
    try:
        distance, text = distance_function(constraint)
    except (SpecUnsatisfiable, SpecUnspellable):
        assert not accepted
        return
    nearest: dict[tuple[int, ...], int] = {}
    for ids in accepted:
        for length in range(len(ids) + 1):
            nearest[ids[:length]] = min(nearest.get(ids[:length], UNREACHABLE), len(ids) - length + 1)
    for ids in all_ids():
        found = distance(ids)
        right = found == nearest[ids] if ids in nearest else found > LONGEST - len(ids) + 1
        assert right, (spec_to_json(constraint), ids)
    for ids in [*accepted, *all_ids()[:400]]:
        written = text_of(ids)
        if written is not None:
            verdict = Matcher(atoms_of_text(written), False, satisfies).matches(spec.root)
            assert check_text(text, written).satisfied == verdict, (spec_to_json(constraint), written)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sample(3)
def test_distances_are_those_of_brute_force(seed: int) -> None:
    spec = random_sequence(random.Random(seed))
    assert_distances(spec, spec)


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_a_budget_counts_the_tokens_that_write_a_byte(budget: int) -> None:
    distance, _ = distance_function(sequence("a", {"free": {"max_tokens": budget}}, {"token": "<t>"}))
    inside = (1,) * budget  # b
    assert distance((0, *inside, TAG)) == 1
    assert distance((0, *inside)) == 2, "the budget is spent, and the next part follows"
    assert distance((0, *inside, 1)) == UNREACHABLE
    # The token `ab` begins before the free text, and counts.
    assert distance((3, *inside[1:], TAG)) == 1 and distance((3, *inside, TAG)) == UNREACHABLE


def test_text_with_stop_and_budget_ends_at_the_first() -> None:
    distance, _ = distance_function(sequence({"free": {"until": ["."], "max_tokens": 2}}, {"token": "<t>"}))
    assert distance((0,)) == 3, "neither the stop nor the last token was written"
    assert distance((2, TAG)) == distance((0, 2, TAG)) == distance((0, 0, TAG)) == 1
    assert distance((0, TAG)) == distance((0, 0, 2)) == distance((2, 0)) == UNREACHABLE


def test_text_never_writes_a_named_token() -> None:
    distance, text = distance_function(sequence({"free": {}}, {"optional": {"token": "<t>"}}, "a"))
    assert distance((TAG, 0)) == 1 and distance((TAG, TAG)) == distance((OTHER,)) == UNREACHABLE
    assert check_text(text, "<t>a").satisfied
    # An added token that no part names is text like any other.
    distance, _ = distance_function(sequence({"free": {}}))
    assert distance((9,)) == 1


def test_a_long_budget_compiles() -> None:
    tokens = compile_spec(sequence({"free": {"max_tokens": 1024}}, {"token": "<t>"}), VOCABULARY).tokens
    assert tokens.min_tokens == 2 and tokens.states > 1024


def test_free_text_has_at_least_one_character_or_token() -> None:
    for name in ("max_tokens", "max_chars"):
        with pytest.raises(SpecSyntaxError, match="leave the part out") as caught:
            sequence({"free": {name: 0}})
        assert caught.value.field == f"sequence.0.free.{name}"


def test_names_of_tokens_are_checked() -> None:
    for name, says in (("<r>", "did you mean"), ("</s>", "ends the text")):
        with pytest.raises(SpecSyntaxError, match=says) as caught:
            compile_spec(spec_from_json({"all": [{"sequence": ["a", {"optional": {"token": name}}]}]}), VOCABULARY)
        assert caught.value.field == "all.0.sequence.1.optional.token"


# --- combinations -----------------------------------------------------------------------------------------------------

MARKED = {"sequence": [{"token": "<t>"}, {"free": {"max_tokens": 3}}]}


@pytest.mark.parametrize(("constraint", "accepted", "rejected"), [
    ({"all": [MARKED, {"regex": "<t>a*"}]}, "<t>aa", "<t>ab"),
    ({"any": [MARKED, {"regex": "b"}]}, "b", "bb"),
    ({"not": MARKED}, "<u>", "<t>a"),
    ({"all": [{"not": MARKED}, {"regex": "<t>|b"}]}, "b", "<t>"),
    ({"all": [{"sequence": ["a", {"free": {}}]}, {"sequence": [{"free": {}}, "b"]}]}, "a.b", "a."),
    ({"not": {"sequence": ["a", {"free": {"until": ["b"]}}]}}, "abb", "a.b"),
    ({"all": [{"sequence": ["a", {"json_schema": True}]}, {"max_chars": 4}]}, "a[1]", "a[12]"),
    ({"sequence": [{"regex": "[ab]+"}], "labels": ["a", "b"]}, None, None),
])  # fmt: skip
def test_sequences_combine(constraint: dict[str, object], accepted: str | None, rejected: str | None) -> None:
    spec = spec_from_json(constraint)
    compiled = compile_spec(spec, OVER_TEXTS)
    if accepted is not None and rejected is not None:
        assert check_text(compiled.text, accepted).satisfied and not check_text(compiled.text, rejected).satisfied
        assert check_text(decode(encode(compiled, b"s"), b"s", OVER_TEXTS.fingerprint).text, accepted).satisfied
    assert check_text(compile_text(spec), accepted or "a b").satisfied or accepted is None


def test_named_tokens_stay_in_their_sequence() -> None:
    compiled = compile_spec(spec_from_json({"any": [MARKED, {"regex": "<t>b"}]}), VOCABULARY)
    states, start = host_states(compiled.tokens, None)
    assert states.distance_of(states.advance(states.advance(start, TAG), 1)) == 1
    both = compile_spec(spec_from_json({"all": [MARKED, {"regex": "<t>ab"}]}), VOCABULARY)
    states, start = host_states(both.tokens, None)
    assert states.distance_of(states.advance(start, TAG)) == 2  # `ab` and EOS
    assert states.distance_of(states.advance(start, 9)) == UNREACHABLE  # the same characters as text


@pytest.mark.parametrize(("constraint", "construct"), [
    ({"all": [MARKED, {"sequence": [{"token": "<t>"}, "a"]}]}, "two grammars in a conjunction"),
    ({"not": {"sequence": [CONSTRAINTS[-1], CONSTRAINTS[-1], {"free": {}}, "a"]}}, "negation of an ambiguous sequence"),
    ({**MARKED, "labels": ["a", "b"]}, "sequence of tokens or grammars"),
    ({"sequence": [{"all": [CONSTRAINTS[-1], {"max_chars": 3}]}]}, "grammar in labels or a schema"),
    ({"sequence": [{"not": MARKED}]}, "sequence of tokens or grammars"),
    ({"json_schema": {"type": "string", "constraint": MARKED}}, "sequence of tokens or grammars"),
])  # fmt: skip
def test_what_has_no_machine_is_refused(constraint: dict[str, object], construct: str) -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: error.construct == construct):
        compile_spec(spec_from_json(constraint), VOCABULARY)


def test_sizes_have_limits() -> None:
    for limits, parts, limit in (
        (Limits(sequence_parts_max=3), ["a", "b", "c"], "sequence_parts_max"),
        (Limits(template_chars_max=3), ["ab", "cd"], "template_chars_max"),
        (Limits(dfa_states_max=500), [{"free": {"max_tokens": 500}}], "dfa_states_max"),
    ):
        with pytest.raises(LimitExceeded) as caught:
            compile_spec(sequence(*parts), VOCABULARY, limits)
        assert caught.value.limit == limit


def test_a_sequence_without_text_is_unsatisfiable() -> None:
    for parts in ([{"regex": "(?!)"}], ["a", {"any": [{"all": [{"regex": "a"}, {"regex": "b"}]}]}]):
        with pytest.raises(SpecUnsatisfiable):
            compile_text(sequence(*parts))
    with pytest.raises(SpecUnspellable):
        compile_spec(sequence("z", {"token": "<t>"}), VOCABULARY)


def test_a_prompt_may_end_inside_of_free_text() -> None:
    free = {"free": {"max_tokens": 2}}
    compiled = compile_spec(sequence("a", free, {"token": "<t>"}, leading_space="forbid"), VOCABULARY)
    for prompt, chars, least in (("a", 1, 2), ("abbbb", 5, 2), ("ab<t>", 5, 1), ("b", 0, None)):
        prefix = read_prefix(compiled.text, compiled.tokens, prompt)
        assert prefix.chars == chars
        if least is not None:
            states, start = host_states(compiled.tokens, prefix.start)
            assert states.distance_of(start) == least, prompt
    # Tokens of the prompt are no tokens of the answer.
    states, state = host_states(compiled.tokens, read_prefix(compiled.text, compiled.tokens, "abbb").start)
    for _ in range(2):
        state = states.advance(state, 1)
    assert states.distance_of(state) == 2 and states.distance_of(states.advance(state, 1)) == UNREACHABLE


# --- captures ---------------------------------------------------------------------------------------------------------


def captures(constraint: object, text: WrittenText) -> list[tuple[str, str]]:
    found = compiled_captures(constraint, text)
    return [(each.name, text.data.decode()[each.start : each.end]) for each in found]


def compiled_captures(constraint: object, text: WrittenText) -> tuple[CapturedSpan, ...]:
    compiled = compile_spec(spec_from_json(constraint), OVER_TEXTS)
    found = decode(encode(compiled, b"s"), b"s", OVER_TEXTS.fingerprint).captured(text)
    assert found is not None
    return found


X, Y = ({"capture": name, "part": {"regex": "x*"}} for name in "ab")


@pytest.mark.parametrize(("constraint", "text", "expected"), [
    ({"sequence": [X, Y]}, "xxx", [("a", "xxx"), ("b", "")]),
    ({"sequence": [{"optional": X}, "x", Y]}, "xxx", [("a", "xx"), ("b", "")]),
    ({"sequence": [{"any": [{"capture": "a", "part": "x"}, {"capture": "b", "part": {"regex": "x+"}}]}, Y]},
     "xx", [("b", "xx"), ("b", "")]),
    ({"sequence": [{"repeat": {"capture": "n", "part": {"regex": "[0-9]+"}}, "separator": {"optional": ","}}]},
     "12,3", [("n", "12"), ("n", "3")]),
    ({"sequence": [{"capture": "o", "part": {"sequence": ["[", {"capture": "i", "part": {"regex": ".*"}}, "]"]}}]},
     "[é]", [("o", "[é]"), ("i", "é")]),
    ({"sequence": [{"capture": "t", "part": {"free": {"until": ["..", "."]}}}, {"capture": "r", "part": {"free": {}}}]},
     "a..b", [("t", "a"), ("r", ".b")]),
    ({"all": [{"sequence": [X, {"free": {}}]}, {"max_chars": 3}]}, "xy", [("a", "x")]),
    ({"any": [{"sequence": [X, "!"]}, {"sequence": [{"capture": "b", "part": "y"}]}]}, "y", [("b", "y")]),
    ({"sequence": [{"capture": "j", "part": {"json_schema": True}}, {"free": {}}]}, "[[1], 2] x", [("j", "[[1], 2]")]),
])  # fmt: skip
def test_captures_of_a_text(constraint: object, text: str, expected: list[tuple[str, str]]) -> None:
    assert captures(constraint, WrittenText(text.encode())) == expected


def test_captures_of_tokens() -> None:
    constraint = {"sequence": [
        {"capture": "a", "part": {"free": {"max_tokens": 2}}}, {"capture": "b", "part": {"free": {}}}, {"token": "<t>"},
    ]}  # fmt: skip
    pieces = [(b" a", None), ("é".encode()[:1], None), ("é".encode()[1:], None), (b"<t>", None), (b"<t>", "<t>")]
    # The leading space is no part of the answer. The fourth token is text.
    found = compiled_captures(constraint, written_text("aé<t><t>", pieces))
    places = [(each.name, each.start, each.end, each.tokens) for each in found]
    assert places == [("a", 0, 1, (0, 1)), ("b", 1, 5, (1, 4))]
    assert captures(constraint, WrittenText("aé<t><t>".encode())) == [("a", "aé<t>"), ("b", "")]
    behind = compiled_captures(constraint, written_text("xxab<t>", [(b"b", None), (b"<t>", "<t>")], "xxa"))
    assert [(each.start, each.end, each.tokens) for each in behind] == [(0, 4, (0, 1)), (4, 4, (1, 1))]


def test_captures_stop_at_their_limit() -> None:
    parts = [{"capture": str(number), "part": {"free": {}}} for number in range(3)]
    compiled = compile_spec(sequence(*parts, "a"), OVER_TEXTS)
    assert compiled.captured(WrittenText(b"a" * 4_000)) is None


def test_captures_are_refused_where_they_have_no_place() -> None:
    inside = {"sequence": [X]}
    for constraint in (
        {"not": inside}, {**inside, "labels": ["x"]}, {"sequence": [{"all": [inside, inside]}]},
        {"json_schema": {"type": "string", "constraint": inside}},
    ):
        with pytest.raises(CompileError):
            compile_text(spec_from_json(constraint))
