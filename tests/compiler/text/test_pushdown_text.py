"""Texts of grammars: checks, places of violations, and prompts."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from compiler.diagnostics import explain
from compiler.errors import LimitExceeded, SpecUnsatisfiable, SpecUnspellable, SpecUnsupported
from compiler.grammars import SYNTAXES, read_grammar
from compiler.lifting import UNREACHABLE
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.pipeline import compile_spec, compile_text
from compiler.pushdown import Configurations, PushdownAutomaton, build_machine, with_leading_space
from compiler.spec import GrammarSpec, RegexSpec, spec_from_json
from compiler.text import PushdownText, answer_text, check_text, read_prefix, replay
from compiler.text.pushdown_text import STACK_SHOWN_MAX
from compiler.vocab import Vocabulary, byte_vocabulary
from tests.compiler.pushdown.grammars import GRAMMARS
from tests.references.context_free import derives, mutated, random_text

BRACKETS = GrammarSpec('start: "(" start* ")" | /[0-9]+/', "lark")
MUNCH = GrammarSpec('start: (A B)* "c"\nA: /a+/\nB: /b|ab/', "lark")
AMBIGUOUS = GrammarSpec('root ::= root root | "a" root "b" | "a" | "b"', "gbnf")
SPACED = GrammarSpec('root ::= " "* ("a" | "(" root ")")', "gbnf")
ALPHABETS = {BRACKETS: "()1", MUNCH: "abc", AMBIGUOUS: "abc", SPACED: " a()"}
TOKENS = Vocabulary((b"(", b")", b"))", b"1", b" (", b" ", b"a", b"(a", b"b", b"ab", b"!", None), (11,))


def pushdown(spec: GrammarSpec, vocabulary: Vocabulary = TOKENS) -> tuple[PushdownText, PushdownAutomaton]:
    compiled = compile_spec(spec, vocabulary)
    assert isinstance(compiled.text, PushdownText) and isinstance(compiled.tokens, PushdownAutomaton)
    return compiled.text, compiled.tokens


@pytest.mark.parametrize("spec", ALPHABETS, ids=lambda spec: spec.text)
def test_a_check_names_the_first_hopeless_character(spec: GrammarSpec) -> None:
    grammar = read_grammar(spec.text, spec.syntax, ResourceGuard(DEFAULT_LIMITS)).grammar
    alphabet, text = ALPHABETS[spec], compile_text(spec)
    accepted = {
        "".join(each)
        for length in range(8 if spec is SPACED else 7)  # longer ones end no shorter prefix
        for each in itertools.product(alphabet, repeat=length)
        if each.count("(") == each.count(")") and derives(grammar, "".join(each))
    }
    prefixes = {each[:length] for each in accepted for length in range(len(each) + 1)}
    for each in map("".join, itertools.chain.from_iterable(itertools.product(alphabet, repeat=n) for n in range(4))):
        dead = next((at for at in range(len(each)) if each[: at + 1] not in prefixes), len(each))
        assert check_text(text, each).violated_at == (None if each in accepted else dead), each


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.sample(5)
def test_one_space_may_stand_before_a_text(name: str) -> None:
    case, draw = GRAMMARS[name], random.Random(5)
    machine = build_machine(case.grammar, ResourceGuard(DEFAULT_LIMITS))
    spaced = with_leading_space(machine)
    for turn in range(60):
        text = random_text(case.grammar, draw)[:80]
        text = draw.choice(("", " ", "  ")) + (mutated(text, draw, case.alphabet) if turn % 2 else text)
        own = name == "json"  # its texts may begin with spaces anyway
        expected = derives(case.grammar, text) or (not own and text[:1] == " " and derives(case.grammar, text[1:]))
        assert (spaced is machine) == own and bool(spaced.conflicts()) == bool(machine.conflicts())
        assert spaced.accepts(text.encode()) == expected, text
        assert machine.accepts(text.encode()) == derives(case.grammar, text), text


def test_the_space_before_an_answer_is_removed() -> None:
    assert answer_text(compile_text(BRACKETS), " 1") == "1" and answer_text(compile_text(SPACED), " a") == "a"
    assert answer_text(compile_text(GrammarSpec('root ::= " a"', "gbnf")), " a") == " a"
    strict = GrammarSpec(BRACKETS.text, "lark", leading_space="forbid")
    assert answer_text(compile_text(strict), " 1") == " 1"
    assert not compile_text(strict).strips_space
    assert pushdown(strict)[1].min_tokens == pushdown(BRACKETS)[1].min_tokens == 2


def test_units_and_tokens_have_the_state_after_them() -> None:
    text, tokens = pushdown(BRACKETS)
    check = check_text(text, "(1)x")
    assert [word.text for word in check.words] == ["(", "1", ")", "x"]
    assert [word.state >= 0 for word in check.words] == [True, True, True, False] and check.violated_at == 3
    ids, states = [4, 3, 2], Configurations(tokens)  # " (", "1", "))"
    pieces = [TOKENS.tokens[token] or b"" for token in (4, 3, 1)]
    steps, state = replay(text, pieces), states.start
    for token, step in zip((4, 3, 1), steps, strict=False):
        state = states.advance(state, token)
        assert step.state == states.control_of(state) and step.letters == ()
    assert steps[-1].state == steps[-2].state and states.distance_of(states.run(ids)) == UNREACHABLE


def test_a_replay_names_the_open_rules() -> None:
    nested = 'root ::= list\nlist ::= "(" pair* ")"\npair ::= "[" list "]"\n'
    text = compile_text(GrammarSpec(nested, "gbnf"))
    steps = replay(text, [b"(", b"[(", b"[(", b")])", b"])"])
    assert [step.stack for step in steps] == [(), ("pair",), ("pair", "pair"), ("pair",), (), ()]
    deep = replay(text, [b"([" * 100])[0].stack or ()
    assert deep == ("pair",) * STACK_SHOWN_MAX
    assert replay(compile_text(RegexSpec("a")), [b"a"])[0].stack is None


@pytest.mark.parametrize("spec", [BRACKETS, AMBIGUOUS], ids=lambda spec: spec.text)
def test_tokens_continue_a_prompt_from_its_text(spec: GrammarSpec) -> None:
    text, tokens = pushdown(GrammarSpec(spec.text, spec.syntax, leading_space="forbid"), byte_vocabulary())
    for prompt in ("", "(", "((1)", "((1))", "aab", "ab" * 4):
        prefix, states = read_prefix(text, tokens, prompt), Configurations(tokens, members_max=10_000)
        expected = states.run(prompt.encode())
        if states.distance_of(expected) == UNREACHABLE:
            assert prefix.chars < len(prompt)
        else:
            assert prefix.chars == len(prompt) and not isinstance(prefix.start, int)
            continued = Configurations(tokens, start=prefix.start)
            assert continued.distance_of(continued.start) == states.distance_of(expected)


def test_a_prompt_that_tokens_cannot_continue_is_found() -> None:
    text, tokens = pushdown(GrammarSpec('root ::= "(" root ")" | "1" | "2}"', "gbnf"))
    assert read_prefix(text, tokens, "((2").chars == 2
    assert read_prefix(text, tokens, "((x").chars == 2 and read_prefix(text, tokens, "((1").chars == 3


def test_hostile_texts_stop_at_a_named_limit() -> None:
    text = compile_text(GrammarSpec('root ::= root root root | root root | "a"', "gbnf"))
    assert check_text(text, "a" * 30).satisfied
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "check_steps_max"):
        check_text(replace(text, limits=Limits(check_steps_max=20_000)), "a" * 500)
    few, tokens = pushdown(AMBIGUOUS)
    few = replace(few, limits=Limits(check_steps_max=50))
    with pytest.raises(LimitExceeded, match="check_steps_max"):
        read_prefix(few, tokens, "ab" * 20)


def test_deep_texts_take_few_steps() -> None:
    text = compile_text(BRACKETS)
    assert check_text(text, "(" * 5_000 + ")" * 5_000).satisfied
    assert check_text(text, "(" * 5_000 + ")" * 5_001).violated_at == 10_000


def test_what_no_token_spells_is_named() -> None:
    with pytest.raises(SpecUnspellable, check=lambda error: error.characters == ("é",)):
        compile_spec(GrammarSpec('root ::= "é" | "日日" | "(" root "}"', "gbnf"), TOKENS)
    with pytest.raises(SpecUnsatisfiable):
        compile_spec(GrammarSpec('start: /a+/ "a"', "lark"), TOKENS)
    with pytest.raises(SpecUnsatisfiable):
        compile_text(GrammarSpec('start: /a+/ "a"', "lark"))


def test_labels_and_schemas_hold_no_grammar() -> None:
    inside = {"grammar": BRACKETS.text, "syntax": "lark"}
    schema = {"json_schema": {"constraint": {"any": [inside, {"regex": "a"}]}}}
    for constraint, path in (
        ({**inside, "labels": ["a"]}, "grammar"), (schema, "json_schema.constraint.any.0.grammar"),
    ):  # fmt: skip
        with pytest.raises(SpecUnsupported) as caught:
            compile_text(spec_from_json(constraint))
        assert (caught.value.field, caught.value.construct) == (path, "grammar in labels or a schema")


@pytest.mark.parametrize("spec", ALPHABETS, ids=lambda spec: spec.text)
def test_an_explanation_shows_texts_of_the_grammar(spec: GrammarSpec) -> None:
    grammar = read_grammar(spec.text, spec.syntax, ResourceGuard(DEFAULT_LIMITS)).grammar
    compiled = compile_spec(spec, byte_vocabulary())
    explanation = explain(compiled)
    assert explanation.shortest is not None and not explanation.states and not explanation.letters
    texts = [explanation.shortest, *explanation.samples]
    assert len(set(texts)) > 2 and all(derives(grammar, each) for each in texts)
    assert min(map(len, texts)) == len(texts[0]) == compiled.tokens.min_tokens - 1


def test_the_syntaxes_of_specs_are_those_of_the_readers() -> None:
    for syntax in SYNTAXES:
        read: Any = spec_from_json({"grammar": "x", "syntax": syntax})
        assert (read.text, read.syntax, read.leading_space) == ("x", syntax, "strip")
