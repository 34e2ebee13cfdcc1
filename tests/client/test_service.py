"""Every method of both clients against a real service."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Any

import pytest

from abs_client import (
    AsyncClient,
    BrokenRule,
    BudgetTooSmallError,
    Choice,
    Client,
    Compilation,
    ConstraintSyntaxError,
    ConstraintUnsatisfiableError,
    ConstraintUnsupportedError,
    Done,
    F,
    GrammarConstraint,
    InvalidRequestError,
    JsonSchema,
    Keywords,
    Length,
    Ltlf,
    Policy,
    Regex,
    Retry,
    Step,
    UnknownAutomatonError,
    UnknownJobError,
    UnknownModelError,
)
from tests.client.both_clients import ask, with_both_clients

DOG_AND_BALL = F("dog") & Keywords("ball")
PROMPT = "sentence:"


@with_both_clients
def test_generate_gives_texts_that_satisfy_with_their_traces(kind: str, url: str) -> None:
    result = ask(kind, url, lambda c: c.generate(PROMPT, DOG_AND_BALL, max_tokens=20, n=2, trace=True))
    assert len(result.texts) == 2 and result.text == result.texts[0]
    for choice in result.choices:
        assert choice.satisfied and {"dog", "ball"} <= {word for unit in choice.words for word in unit.propositions}
        assert choice.trace is not None and choice.trace[-1].distance == 0
    assert result.usage.sequences == 16 and result.timings.total_ms > 0 and result.model == "captions"
    assert result.raw["choices"][0]["text"] == result.text and result.seed is None


@with_both_clients
def test_an_answer_shows_how_far_the_best_text_can_be(kind: str, url: str) -> None:
    pets = Choice("a dog", "a cat", "two toys")
    options: dict[str, Any] = {"max_tokens": 6, "beams": 8, "length_penalty": 0, "n": 3}
    first, *next_best = ask(kind, url, lambda c: c.generate(PROMPT, pets, **options)).choices
    assert first.proven_gap == 0 and len(next_best) == 2
    for choice in next_best:
        assert choice.proven_gap == pytest.approx(first.log_prob - choice.log_prob)
    abs_choice = ask(kind, url, lambda c: c.generate(PROMPT, pets, algorithm="abs", max_tokens=6, beams=4)).choices[0]
    assert abs_choice.proven_gap is None


@with_both_clients
def test_a_sample_names_its_seed_and_is_repeated_by_it(kind: str, url: str) -> None:
    first = ask(kind, url, lambda c: c.generate(PROMPT, F("dog"), algorithm="sample", max_tokens=12))
    repeat = ask(kind, url, lambda c: c.generate(PROMPT, F("dog"), algorithm="sample", max_tokens=12, seed=first.seed))
    assert repeat.text == first.text


@with_both_clients
def test_generate_accepts_a_compiled_constraint(kind: str, url: str) -> None:
    compiled = ask(kind, url, lambda c: c.compile(F("dog")))
    assert compiled.min_tokens == 2 and compiled.explanation.samples
    for options in ({"constraint": compiled}, {"constraint": None, "automaton": compiled.automaton}):
        result = ask(kind, url, lambda c, options=options: c.generate(PROMPT, **options, max_tokens=8, beams=4))
        assert result.automaton == compiled.automaton and "dog" in result.text
    assert ask(kind, url, lambda c: c.compile(F("dog"), explain=False)).explanation is None


@with_both_clients
def test_a_dict_is_as_good_as_a_constraint(kind: str, url: str) -> None:
    compiled = ask(kind, url, lambda c: c.compile({"all": [{"ltlf": "F(dog)"}, {"keywords": ["ball"]}]}))
    assert compiled.automaton == ask(kind, url, lambda c: c.compile(DOG_AND_BALL)).automaton


@with_both_clients
def test_a_stream_sends_every_step_and_then_the_answer(kind: str, url: str) -> None:
    stream_events = ask(kind, url, lambda c: c.stream(PROMPT, DOG_AND_BALL, max_tokens=8, beams=4))
    assert isinstance(stream_events[0], Compilation) and isinstance(stream_events[-1], Done)
    steps = [event for event in stream_events if isinstance(event, Step)]
    assert [step.step for step in steps] == list(range(1, len(steps) + 1)) and len(stream_events) == len(steps) + 2
    assert all(row.distance <= step.budget_after for step in steps for row in step.rows if not row.finished)
    answer = ask(kind, url, lambda c: c.generate(PROMPT, DOG_AND_BALL, max_tokens=8, beams=4))
    assert stream_events[-1].result.text == answer.text


@with_both_clients
def test_check_locates_the_violation(kind: str, url: str) -> None:
    satisfaction = ask(kind, url, lambda c: c.check(F("dog"), "a dog"))
    assert satisfaction and satisfaction.violated_at is None and satisfaction.words[1].propositions == ("dog",)
    violation = ask(kind, url, lambda c: c.check(Length(max_words=2), "a dog runs"))
    assert not violation and violation.violated_at is not None and violation.violated_at <= len("a dog runs")
    label_check = ask(kind, url, lambda c: c.check(F("Bag").over("Coat", "Bag"), ["Coat", "Bag"]))
    assert label_check.satisfied


@with_both_clients
def test_a_policy_says_what_may_come_next(kind: str, url: str) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("confirm", "delete")]
    policy = Policy(["precedence(confirm, delete)"], max_calls=2)
    function = {"name": "delete", "arguments": "{}"}
    call = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    result = ask(kind, url, lambda c: c.check_conversation(policy, [call], tools=tools))
    assert not result and result.broken == (BrokenRule("precedence(confirm, delete)", "call(delete)", 0),)
    empty = ask(kind, url, lambda c: c.check_conversation(policy, [], tools=tools))
    assert empty.reply and set(empty.tools) == {"confirm"}
    states = ask(kind, url, lambda c: c.policy_states(policy, tools)).states
    assert [state.tools for state in states if not state.past] == [("confirm",)]
    declared = Policy(decl="Precedence[confirm, delete]", assume=["result(confirm, ok = true)"])
    assert ask(kind, url, lambda c: c.check_conversation(declared, [], tools=tools)) == empty


@with_both_clients
def test_check_reports_the_violated_parts(kind: str, url: str) -> None:
    constraint = F("dog") & Keywords("ball") & Length(max_words=3)
    verdict = ask(kind, url, lambda c: c.check(constraint, "a dog runs far", conjuncts=True))
    parts = {next(iter(part.constraint)): (part.satisfied, part.violated_at) for part in verdict.conjuncts}
    assert parts["ltlf"] == (True, None) and parts["keywords"] == (False, len("a dog runs far"))
    assert parts["max_words"] == (False, len("a dog runs "))
    assert verdict.violated_at == len("a dog "), "the third word is the last one and not the ball"
    assert ask(kind, url, lambda c: c.check(constraint, "a dog runs far")).conjuncts is None


@with_both_clients
def test_a_stream_reports_rejected_tokens(kind: str, url: str) -> None:
    stream_events = ask(kind, url, lambda c: c.stream(PROMPT, DOG_AND_BALL, max_tokens=8, beams=2, rejected_top_k=5))
    steps = [event for event in stream_events if isinstance(event, Step)]
    pairs = itertools.pairwise(steps)
    rejections = [(previous, step, token) for previous, step in pairs for token in step.rejected_tokens]
    assert rejections, "with a budget of eight tokens, the search rejects some"
    for previous, step, token in rejections:
        assert 0 <= token.parent < len(previous.rows) and token.log_prob <= 0
        assert token.reason in ("violates", "over_budget", "no_bytes")
        assert token.distance is None if token.reason != "over_budget" else token.distance > step.budget_after
    default_events = ask(kind, url, lambda c: c.stream(PROMPT, DOG_AND_BALL, max_tokens=8, beams=2))
    assert all(step.rejected_tokens == () for step in default_events if isinstance(step, Step))


@with_both_clients
def test_decode_finds_the_best_labels(kind: str, url: str) -> None:
    rows = [[-0.1, -3.0], [-0.1, -math.inf], [-0.1, -2.0]]
    result = ask(kind, url, lambda c: c.decode(rows, F("b"), ["a", "b"]))
    assert result.labels == ("a", "a", "b") and result.satisfied and result.log_prob == pytest.approx(-2.2)
    beams = ask(kind, url, lambda c: c.decode(rows, F("b").over("a", "b"), beams=2))
    assert beams.labels == result.labels and beams.trace[-1].distance == 0
    with pytest.raises(InvalidRequestError, match="this service has no scorer"):
        ask(kind, url, lambda c: c.decode(None, F("b"), scorer="claims", prefix=["a"], max_tokens=4))


@with_both_clients
def test_a_grammar_is_compiled_with_its_warnings(kind: str, url: str) -> None:
    grammar = GrammarConstraint('root ::= "(" root ")" | "dog"\nspare ::= "b"', "gbnf")
    compiled = ask(kind, url, lambda c: c.compile(grammar))
    (warning,) = compiled.warnings
    assert (warning.message, warning.line, warning.column) == ("the rule spare is not used", 2, 1)
    assert ask(kind, url, lambda c: c.generate(PROMPT, grammar, max_tokens=compiled.min_tokens)).text == "dog"


@with_both_clients
def test_an_automaton_is_available_as_json_dot_and_svg(kind: str, url: str) -> None:
    compiled = ask(kind, url, lambda c: c.compile(F("dog")))
    automaton = ask(kind, url, lambda c: c.automaton(compiled))
    assert automaton.kind == "words" and {state.distance for state in automaton.states} == {2, 1}
    assert {transition.source for transition in automaton.transitions} == {0, 1}
    assert automaton.constraint["ltlf"] == "F(dog)"
    assert ask(kind, url, lambda c: c.automaton_dot(compiled.automaton)).startswith("digraph")
    assert ask(kind, url, lambda c: c.automaton_svg(compiled)).startswith("<svg")


@with_both_clients
def test_models_version_and_readiness(kind: str, url: str) -> None:
    cards = ask(kind, url, lambda c: c.models())
    assert [(card.id, card.context_tokens) for card in cards] == [("captions", 256), ("stories", 512)]
    assert ask(kind, url, lambda c: c.version()).count(".") == 2
    assert ask(kind, url, lambda c: c.ready()) and ask(kind, url, lambda c: c.wait_until_ready(1.0)) is None


def test_a_job_can_be_awaited_streamed_and_reopened(url: str) -> None:
    with Client(url) as client:
        job = client.submit(PROMPT, F("dog"), max_tokens=8, beams=4)
        result = job.result(timeout_s=60)
        assert "dog" in result.text and job.state().state == "done" and job.cancel().state == "done"
        assert job.events().until_done().text == result.text
        assert client.job(job.id).result().text == result.text
        assert client.submit_compile(F("dog")).result().min_tokens == 2
        assert client.submit_decode([[-1.0, -2.0]], F("b"), ["a", "b"]).result().labels == ("b",)


@with_both_clients
def test_json_of_a_schema_is_parsed(kind: str, url: str) -> None:
    schema = {"type": "object", "properties": {"name": {"enum": ["dog", "cat"]}}, "required": ["name"],
              "additionalProperties": False}  # fmt: skip
    result = ask(kind, url, lambda c: c.generate(PROMPT, JsonSchema(schema), max_tokens=24, beams=4))
    assert result.parse() in ({"name": "dog"}, {"name": "cat"})


REFUSALS: list[tuple[str, Any, type[Exception], dict[str, Any]]] = [
    ("a formula", lambda c: c.compile(Ltlf("F(dog")), ConstraintSyntaxError, {"position": 5, "field": "ltlf"}),
    ("an inner formula", lambda c: c.compile(F("a") & Ltlf("G(")), ConstraintSyntaxError, {"field": "all.1.ltlf"}),
    ("a form", lambda c: c.compile({"grammar": "a"}), ConstraintSyntaxError, {"position": None}),
    ("a pattern", lambda c: c.compile(Regex(r"(a)\1")), ConstraintUnsupportedError, {"construct": "back-reference"}),
    ("nothing satisfies", lambda c: c.compile(F("a") & ~F("a")), ConstraintUnsatisfiableError, {"status": 422}),
    ("a budget", lambda c: c.generate("a", F("a"), max_tokens=1), BudgetTooSmallError,
     {"min_tokens": 2, "max_tokens": 1}),
    ("a stream's budget", lambda c: c.stream("a", F("a"), max_tokens=1), BudgetTooSmallError, {"min_tokens": 2}),
    ("a field", lambda c: c.generate("a", F("a"), bemas=3), InvalidRequestError, {"code": "invalid_request"}),
    ("a model", lambda c: c.generate("a", F("a"), model="b"), UnknownModelError, {"served": "captions, stories"}),
    ("an automaton", lambda c: c.generate("a", automaton="0" * 64), UnknownAutomatonError, {"status": 404}),
    ("a hash", lambda c: c.automaton("../v1/models"), UnknownAutomatonError, {"status": 0}),
    ("a job", lambda c: c.job("0" * 32).state(), UnknownJobError, {"status": 404}),
    ("no id of a job", lambda c: c.job("x").state(), UnknownJobError, {"status": 0}),
]


@with_both_clients
@pytest.mark.parametrize(("name", "call", "error", "attributes"), REFUSALS, ids=[row[0] for row in REFUSALS])
def test_a_refusal_raises_a_typed_error(
    kind: str, name: str, call: Any, error: type[Exception], attributes: dict[str, Any], url: str
) -> None:
    with pytest.raises(error) as caught:
        ask(kind, url, call, retry=Retry(tries=1))
    assert {attribute: getattr(caught.value, attribute) for attribute in attributes} == attributes
    assert not attributes.get("status", 422) or caught.value.request_id  # type: ignore[attr-defined]


def test_an_idempotency_key_returns_the_same_answer(url: str) -> None:
    with Client(url) as client:
        key = "a-key-of-the-caller-s"  # other tests share the service and its keys
        options: dict[str, Any] = {"algorithm": "sample", "max_tokens": 12, "idempotency_key": key}
        assert client.generate(PROMPT, F("dog"), **options).raw == client.generate(PROMPT, F("dog"), **options).raw


async def test_many_tasks_share_a_client(url: str) -> None:
    words = ("dog", "cat", "ball", "man", "woman", "street")
    async with AsyncClient(url) as client:
        results = await asyncio.gather(*(client.generate(PROMPT, F(word), max_tokens=8, beams=4) for word in words))
    assert [result.choices[0].satisfied for result in results] == [True] * 6
