"""Tokens in GBNF, against brute force over all short token sequences."""

from __future__ import annotations

import json
import random

import pytest

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.lifting import UNREACHABLE
from compiler.pipeline import compile_spec
from compiler.spec import (
    AnyPart,
    FreePart,
    GrammarSpec,
    OptionalPart,
    Part,
    RepeatPart,
    SequencePart,
    SequenceSpec,
    TokenPart,
    spec_from_json,
)
from compiler.text import check_text
from decoding.prepared_constraint import host_states
from tests.compiler.forms.test_sequences import OTHER, TAG, VOCABULARY, assert_distances, distance_function, sequence
from tests.references.sequences import random_part


def gbnf(part: Part) -> str:
    """The same texts in GBNF."""
    match part:
        case str():
            return json.dumps(part, ensure_ascii=False)
        case TokenPart():
            return part.name
        case FreePart():
            return "!<t>*" if part.max_tokens is None else "!<t>?"
        case OptionalPart():
            return f"({gbnf(part.part)})?"
        case AnyPart():
            return f"({' | '.join(map(gbnf, part.parts))})"
        case SequencePart():
            return f"({' '.join(map(gbnf, part.parts))})"
        case RepeatPart(separator=None):
            high = "" if part.maximum is None else part.maximum
            return f"({gbnf(part.part)}){{{part.minimum},{high}}}"
    raise AssertionError(part)


def random_sequence(draw: random.Random) -> SequenceSpec:
    def leaf() -> Part:
        kind = draw.randrange(4)
        if kind == 0:
            return draw.choice(("a", "b", ".", "ab", "", "é", "<"))
        return TokenPart(draw.choice(("<t>", "<u>"))) if kind < 3 else FreePart((), (), draw.choice((None, 1)))

    while True:
        parts = tuple(random_part(draw, 2, leaf) for _ in range(draw.randint(1, 3)))
        spec = SequenceSpec(SequencePart(parts), "forbid")
        try:
            gbnf(spec.root)
        except AssertionError:  # a part that GBNF has not
            continue
        return spec


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(8)
def test_distances_are_those_of_brute_force(seed: int) -> None:
    spec = random_sequence(random.Random(seed))
    assert_distances(spec, GrammarSpec(f"root ::= {gbnf(spec.root)}", "gbnf", "forbid"))


def test_tokens_may_nest() -> None:
    grammar = GrammarSpec('root ::= <t> (root | !<u>+) <u>', "gbnf", "forbid")
    distance, text = distance_function(grammar)
    assert distance(()) == 4
    assert distance((TAG, TAG, TAG)) == 5 and distance((TAG, 0, 1, OTHER)) == 1
    assert distance((TAG, OTHER)) == distance((9,)) == UNREACHABLE, "text spells no token"
    assert distance((TAG, 9, OTHER)) == 1
    assert check_text(text, "<t><t>a<u><u>").satisfied and not check_text(text, "<t><u>").satisfied


def test_one_token_writes_another_token() -> None:
    distance, _ = distance_function(GrammarSpec('root ::= <t> !<t> <t>', "gbnf", "forbid"))
    assert distance((TAG,)) == 3 and distance((TAG, 3, TAG)) == 1
    assert distance((TAG, 0, 1)) == UNREACHABLE, "two tokens"
    assert distance((TAG, TAG)) == distance((TAG, OTHER)) == UNREACHABLE


def test_grammars_with_tokens_combine() -> None:
    grammar = {"grammar": 'root ::= <t> !<t>{1,2} "."', "syntax": "gbnf"}
    both = compile_spec(spec_from_json({"all": [grammar, {"regex": "<t>ab."}]}), VOCABULARY)
    states, start = host_states(both.tokens, None)
    assert states.distance_of(start) == 4 and states.distance_of(states.advance(start, 9)) == UNREACHABLE
    with pytest.raises(SpecUnsupported, check=lambda error: error.construct == "negation of a grammar with tokens"):
        compile_spec(spec_from_json({"not": grammar}), VOCABULARY)
    inside, _ = distance_function(sequence("a", grammar, "b", leading_space="forbid"))
    assert inside((0, TAG)) == 3 and inside((0, TAG, 0, 1, 2, 1)) == 1 and inside((0, TAG, 0, 0, 0)) == UNREACHABLE


@pytest.mark.parametrize(("text", "says", "column"), [
    ('root ::= "a" <r>', "did you mean", 14), ("root ::= !<t> </s>", "ends the text", 15),
    ("root ::= !<other>*", "no special or added token", 10),
])  # fmt: skip
def test_names_of_tokens_are_checked(text: str, says: str, column: int) -> None:
    with pytest.raises(SpecSyntaxError, match=says) as caught:
        compile_spec(spec_from_json({"any": [{"regex": "a"}, {"grammar": text, "syntax": "gbnf"}]}), VOCABULARY)
    assert caught.value.field == "any.1.grammar" and caught.value.column == column
