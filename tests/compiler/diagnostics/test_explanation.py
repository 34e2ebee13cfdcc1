"""Explanations of constraints: the definitions check each text, the automaton each number."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
from typing import Any

import pytest

from compiler.artifact import CompiledConstraint
from compiler.diagnostics import ConstraintExplanation, explain, with_caller_names
from compiler.diagnostics.explanation import SAMPLES, SHOWN_MAX
from compiler.diagnostics.formula_prose import formula_clause
from compiler.diagnostics.prose import sentence, title
from compiler.errors import LimitExceeded, SpecUnsatisfiable, SpecUnspellable
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.ltlf import parse_formula
from compiler.pipeline import compile_spec
from compiler.spec import LabelsSpec, RegexSpec, caller_names, spec_from_json
from compiler.text import check_text
from compiler.vocab import byte_vocabulary
from tests.references.random_constraints import random_spec
from tests.references.text import satisfies
from tests.tables import table

BYTES = byte_vocabulary()
FORMS: dict[str, tuple[dict[str, Any], str]] = {  # a constraint, and words that its first sentence holds
    row["name"]: (json.loads(row["constraint"]), row["words"]) for row in table("explanations")["form"]
}


@pytest.mark.parametrize("row", table("explanations")["formula"], ids=lambda row: row["formula"])
def test_a_formula_is_read_back_in_words(row: dict[str, str]) -> None:
    formula = parse_formula(row["formula"], ResourceGuard(DEFAULT_LIMITS))
    assert formula_clause(formula) == row["words"]


def test_a_long_formula_is_not_read_back() -> None:
    for source in (" & ".join(f"F(w{number})" for number in range(31)), "X(" * 20 + "a" + ")" * 20):
        assert formula_clause(parse_formula(source, ResourceGuard(DEFAULT_LIMITS))) == ""


def compiled(constraint: object) -> CompiledConstraint:
    return compile_spec(spec_from_json(constraint), BYTES)


def sentences_of(explanation: ConstraintExplanation) -> list[str]:
    assert explanation.shortest is not None
    return [explanation.shortest, *explanation.samples]


@pytest.mark.parametrize("name", FORMS)
def test_every_sample_satisfies_the_constraint(name: str) -> None:
    constraint = compiled(FORMS[name][0])
    for seed in range(5):
        explanation = explain(constraint, seed)
        assert all(satisfies(constraint.spec, text) for text in sentences_of(explanation))
        assert len(set(explanation.samples)) == len(explanation.samples) == SAMPLES


@pytest.mark.parametrize("name", FORMS)
def test_no_accepted_text_is_shorter_than_the_shortest(name: str) -> None:
    constraint = compiled(FORMS[name][0])
    explanation = explain(constraint)
    assert explanation.shortest is not None
    assert len(explanation.shortest.encode()) + 1 <= constraint.tokens.min_tokens  # a leading space may cost one more
    assert min(len(text.encode()) for text in sentences_of(explanation)) == len(explanation.shortest.encode())


@pytest.mark.parametrize("name", FORMS)
def test_the_first_sentence_describes_the_accepted_texts(name: str) -> None:
    constraint, words = FORMS[name]
    explained = explain(compiled(constraint)).sentences
    assert words in explained[0]
    assert all(sentence.endswith(".") and sentence[0].isupper() for sentence in explained)


def test_the_shortest_text_agrees_with_exhaustive_search() -> None:
    constraint = compiled({"all": [{"keywords": ["a", "b"]}, {"not": {"regex": "a.*"}}]})
    shortest = explain(constraint).shortest
    assert shortest is not None
    texts = ("".join(chars) for size in range(len(shortest)) for chars in itertools.product("ab .", repeat=size))
    assert not any(satisfies(constraint.spec, text) for text in texts)


def test_samples_of_random_constraints_satisfy_them() -> None:
    draw, sample_count = random.Random(3), 0
    for spec in [random_spec(draw) for _ in range(15)]:
        try:
            constraint = compile_spec(spec, BYTES)
        except (SpecUnsatisfiable, SpecUnspellable, LimitExceeded):
            continue
        texts = sentences_of(explain(constraint))
        assert all(satisfies(spec, text) for text in texts), spec
        sample_count += len(texts)
    assert sample_count > 15


def test_samples_depend_on_the_seed_alone() -> None:
    constraint = compiled({"keywords": ["dog", "cat"]})
    assert explain(constraint, 1) == explain(constraint, 1)
    assert explain(constraint, 1).samples != explain(constraint, 2).samples


@pytest.mark.parametrize(
    ("constraint", "texts"),
    [
        ({"choice": ["a", "b"]}, {"a", "b"}),
        ({"regex": "x?"}, {"", "x"}),
        ({"regex": "é"}, {"é"}),
        ({"regex": "a|[\x01\x02]"}, {"a", "\x01", "\x02"}),
        ({"regex": "(ab){0,2}"}, {"", "ab", "abab"}),
        ({"regex": "a|\x01{81}"}, {"a", 81 * "\x01"}),
        ({"choice": ["", "a", "b", "c"]}, None),
    ],
)
def test_a_small_language_is_shown_in_full(constraint: object, texts: set[str] | None) -> None:
    samples = explain(compiled(constraint)).samples
    assert set(samples) == texts if texts is not None else len(set(samples)) == SAMPLES


def test_samples_are_readable_where_the_constraint_allows() -> None:
    for pattern in (r"[^x]{20}", r"(?s:.){5,30}", r"\W{4}", r"[\x00-\x7f]{9}"):
        for seed in range(10):
            for text in sentences_of(explain(compiled({"regex": pattern}), seed)):
                assert text.isascii() and text.isprintable(), (pattern, text)


def test_samples_have_a_bounded_length() -> None:
    for constraint in ({"regex": "(?s:.)*"}, {"ltlf": "G(dog -> X(F(cat)))"}, {"min_words": 2}):
        for seed in range(10):
            assert all(len(text) <= 200 for text in explain(compiled(constraint), seed).samples)


def test_no_sample_is_shown_if_the_shortest_text_is_long() -> None:
    explanation = explain(compiled({"regex": "(?:abcdefgh){600}"}))
    assert explanation.shortest is None and explanation.samples == ()
    assert "4,800 bytes" in explanation.sentences[-1]


def test_a_long_shortest_text_is_shown_with_further_samples() -> None:
    explanation = explain(compiled({"regex": "[ab]{1000}c*"}))
    assert all(re.fullmatch("[ab]{1000}c*", text) for text in sentences_of(explanation))
    assert len(explanation.samples) == SAMPLES


def test_samples_are_shown_without_the_optional_leading_space() -> None:
    constraint = compiled({"regex": " ?[a-z]+"})
    explanation = explain(constraint)
    assert "One space before the answer is allowed, and is not part of it." in explanation.sentences
    assert all(check_text(constraint.text, text).satisfied for text in sentences_of(explanation))
    forbidden = explain(compiled({"regex": "[a-z]+", "leading_space": "forbid"}))
    assert "No space is allowed before the answer." in forbidden.sentences


def test_letters_and_states_are_those_of_the_automaton() -> None:
    constraint = compiled({"ltlf": "F(dog & X(F(cat))) & G(!bird)"})
    explanation = explain(constraint)
    assert [letter.name for letter in explanation.letters] == list(constraint.text.symbol_names)
    assert [letter.means for letter in explanation.letters] == [
        "no proposition holds" if name == "other" else f"{name} holds" for name in constraint.text.symbol_names
    ]
    assert tuple(state.distance for state in explanation.states) == constraint.state_distances
    assert [state.start for state in explanation.states].index(True) == constraint.text.display_dfa.start
    accepting = [state.state for state in explanation.states if state.accepting]
    assert accepting == constraint.text.display_dfa.accepting.nonzero()[0].tolist()
    assert explanation.letters_more == explanation.states_more == 0


def test_an_explanation_lists_the_first_states_and_counts_the_others() -> None:
    constraint = compiled({"regex": "a{500}"})
    explanation = explain(constraint)
    assert len(explanation.states) == SHOWN_MAX
    assert explanation.states_more == constraint.text.display_dfa.states - SHOWN_MAX


def test_the_numbers_in_the_sentences_are_those_of_the_automata() -> None:
    constraint = compiled({"keywords": ["dog", "cat"]})
    explained = " ".join(explain(constraint).sentences)
    assert f"{constraint.text.display_dfa.states} states, 1 accepting" in explained
    assert f"takes {constraint.tokens.min_tokens} tokens" in explained
    assert f"{constraint.tokens.states:,} states" in explained


def test_a_sequence_of_labels_is_shown_as_its_labels() -> None:
    labels = ["walk", "run", "sit still"]
    constraint = compiled({"labels": labels, "ltlf": 'F(run & X("sit still")) & G(walk -> X(run))'})
    explanation = explain(constraint)
    assert explanation.shortest == "run sit still"
    assert len(set(explanation.samples)) == SAMPLES
    for text in sentences_of(explanation):
        steps = re.findall("walk|run|sit still", text)
        assert " ".join(steps) == text
        assert ("run", "sit still") in itertools.pairwise(steps)
        assert all(after == "run" for step, after in itertools.pairwise(steps) if step == "walk")
    assert "a sequence of the 3 labels walk, run and sit still" in explanation.sentences[0]
    assert [letter.name for letter in explanation.letters] == labels
    assert isinstance(constraint.spec, LabelsSpec)


def test_an_explanation_uses_the_callers_names() -> None:
    theirs = spec_from_json({"ltlf": "F(pet)", "propositions": {"pet": ["dog", "cat"]}})
    ours = spec_from_json({"ltlf": "F(animal)", "propositions": {"animal": ["cat", "dog"]}})
    explained = with_caller_names(explain(compile_spec(theirs, BYTES)), ours, caller_names(ours))
    assert "F(animal)" in explained.sentences[0]
    assert [letter.name for letter in explained.letters] == ["other", "animal"]
    assert "pet" not in json.dumps([explained.sentences, [letter.means for letter in explained.letters]])


def test_caller_names_do_not_change_labels() -> None:
    theirs = spec_from_json({"labels": ["dog", "cat"], "ltlf": "F(pet)", "propositions": {"pet": ["dog"]}})
    explained = with_caller_names(explain(compile_spec(theirs, BYTES)), theirs, caller_names(theirs.part))  # type: ignore[union-attr]
    assert [letter.name for letter in explained.letters] == ["dog", "cat"]
    assert [letter.means for letter in explained.letters] == ["the label dog, at which pet holds", "the label cat"]


def test_sampling_stops_at_the_time_limit() -> None:
    constraint = compiled({"regex": "[a-z]{40}"})
    with pytest.raises(LimitExceeded):
        explain(constraint, guard=ResourceGuard(Limits(compile_s_max=1e-9)))


def test_samples_over_a_limit_do_not_prevent_the_explanation() -> None:
    constraint = compiled({"keywords": ["dog", "cat"]})
    text = dataclasses.replace(constraint.text, limits=Limits(table_bytes_max=1))
    explained = explain(dataclasses.replace(constraint, text=text), guard=ResourceGuard(DEFAULT_LIMITS))
    assert explained.shortest is None and explained.samples == ()
    assert explained.sentences[-1] == "No examples are shown: to find them takes more than the limit table_bytes_max."
    assert len(explained.states) == constraint.text.display_dfa.states


def test_long_texts_of_callers_are_cut_in_sentences() -> None:
    for spec in (RegexSpec("x" * 5000), spec_from_json({"choice": [f"{'y' * 300}{n}" for n in range(900)]})):
        assert len(sentence(spec)) < 2_500
        assert len(title(spec)) < 60
    assert DEFAULT_LIMITS.pattern_chars_max > 5000


def test_control_characters_are_written_out() -> None:
    explained = sentence(RegexSpec("a\x1b\n"))
    assert explained == r"An answer is accepted when the whole of it matches the pattern “a\x1b\n”."


@pytest.mark.parametrize(
    "constraint",
    [
        {"ltlf": "k & last"},
        {"all": [{"keywords": ["j"]}, {"max_words": 1}]},
        {"ltlf": "F a", "labels": [*(f"l{number}" for number in range(300)), "a"]},
    ],
)
def test_three_distinct_samples_are_found_for_repetitive_languages(constraint: dict[str, Any]) -> None:
    compiled = compile_spec(spec_from_json(constraint), byte_vocabulary())
    for seed in range(20):
        assert len(explain(compiled, seed).samples) == 3


def test_length_propositions_are_not_shown_as_the_callers() -> None:
    text = compile_spec(spec_from_json({"all": [{"keywords": ["dog"]}, {"max_words": 3}]}), byte_vocabulary()).text
    assert [word.letters for word in check_text(text, "a dog").words] == [(), ("dog",)]
    assert "(a word)" in text.symbol_names and not any("?#" in name for name in text.symbol_names)
