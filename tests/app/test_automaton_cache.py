from __future__ import annotations

from dataclasses import replace

from app.automaton_cache import DecodedCache, Decoder, automaton_secret, open_decoder
from app.settings import Settings
from compiler.codec import encode
from compiler.pipeline import compile_spec
from compiler.pushdown import PushdownAutomaton
from compiler.spec import GrammarSpec, RegexSpec
from compiler.text import PushdownText
from compiler.vocab import byte_vocabulary

SECRET = b"s" * 16
VOCABULARY = byte_vocabulary()


HASH = "a" * 64


def blob(pattern: str, automaton: str = HASH) -> bytes:
    return encode(compile_spec(RegexSpec(pattern), VOCABULARY), automaton_secret(SECRET, automaton))


def decoder(bytes_max: int) -> Decoder:
    return Decoder(SECRET, VOCABULARY.fingerprint, DecodedCache(bytes_max))


def test_a_repeated_load_decodes_an_automaton_once() -> None:
    decode, data = decoder(2**28), blob("abc")
    assert decode(HASH, data) is decode(HASH, data)


def test_the_automaton_cache_stays_within_its_bytes() -> None:
    blobs = [blob(f"[a-z]{{1,{length}}}") for length in range(60, 70)]
    decode = decoder(200_000)
    first = [decode(HASH, data) for data in blobs]
    repeats = [decode(HASH, data) for data in reversed(blobs)]
    identities = [before is after for before, after in zip(reversed(first), repeats, strict=True)]
    assert identities[0], "the most recently used automaton stays cached"
    assert not identities[-1], "the least recently used automaton is evicted"


def test_an_automaton_larger_than_the_cache_is_not_cached() -> None:
    decode, data = decoder(10), blob("abc")
    assert decode(HASH, data) is not decode(HASH, data)


def test_growth_of_a_cached_automaton_is_counted() -> None:
    constraint = compile_spec(RegexSpec("[a-z]{1,50}"), byte_vocabulary(checks_texts=True))
    decode = decoder(2**28)
    decode.keep("fresh", constraint)
    bytes_before = decode._cache._bytes
    assert constraint.text.byte_automaton.states
    decode.keep("fresh", constraint)
    assert decode._cache._bytes > bytes_before
    assert decode.over_bytes("fresh") is constraint
    assert decode.over_bytes("other") is None


def test_the_tables_of_a_grammar_are_counted() -> None:
    nested = compile_spec(GrammarSpec('root ::= "(" root* ")" | "[" root? "]"', "gbnf"), VOCABULARY)
    assert isinstance(nested.tokens, PushdownAutomaton) and isinstance(nested.text, PushdownText)
    arrays = sum(array.nbytes for array in (*nested.tokens.arrays().values(), *nested.text.machine.arrays().values()))
    data, decode = encode(nested, automaton_secret(SECRET, HASH)), decoder(2**28)
    assert decode(HASH, data).tokens.min_tokens == nested.tokens.min_tokens
    assert decode._cache._bytes > arrays + len(data)
    before = decode._cache._bytes
    decode.keep("other", replace(nested, text=nested.text_over_bytes()))
    assert decode._cache._bytes > before + arrays


def test_a_process_has_one_decoder() -> None:
    settings = Settings()
    assert open_decoder(settings, "v") is open_decoder(settings, "v")
    assert open_decoder(settings, "v") is not open_decoder(settings, "w")
