"""Sizes of choices that compile, given the time."""

from __future__ import annotations

import random
import string

import pytest

from compiler.codec import decode, encode
from compiler.lifting import TokenAutomaton
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.spec import ChoiceSpec
from compiler.vocab import Vocabulary

SECRET = b"secret"


@pytest.mark.parametrize("count", [8_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_choices_compile_and_are_stored(count: int) -> None:
    letters = string.ascii_lowercase
    draw = random.Random(1)
    choices = sorted({"".join(draw.choices(letters, k=13)) for _ in range(count)})
    tokens = [*letters, *(first + second for first in letters for second in letters)]
    words = Vocabulary((*(token.encode() for token in tokens), None), (len(tokens),))
    compiled = compile_spec(ChoiceSpec(tuple(choices)), words, Limits(compile_s_max=300))
    stored = decode(encode(compiled, SECRET), SECRET, words.fingerprint).tokens
    assert isinstance(stored, TokenAutomaton) and stored.min_tokens == 8 and stored.table_bytes < 420 * count
    number = {token.decode(): id for id, token in enumerate(words.tokens) if token is not None}
    for choice in draw.sample(choices, 50):
        state = stored.start
        for token in [*(choice[at : at + 2] for at in range(0, 12, 2)), choice[12:]]:
            state = stored.advance(state, number[token])
        assert stored.distance_of(stored.advance(state, words.eos_ids[0])) == 0
        assert stored.distance_of(stored.advance(state, number[choice[:1]])) > 2**30
