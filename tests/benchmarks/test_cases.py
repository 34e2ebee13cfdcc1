"""The translations of benchmark constraints for other engines keep their meaning."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from benchmarks.compiler.cases import PEERS, CompileCase, Expression, for_all
from benchmarks.compiler.compile import suite
from benchmarks.compiler.scale import TEMPLATE_CHARS, points, template
from benchmarks.keyword_patterns import ASCII, UNICODE, Concepts, Pattern, first_concepts, keyword_sets
from compiler.errors import LimitExceeded
from compiler.lifting import UNREACHABLE
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json
from compiler.text import TextAutomaton, check_text

CONCEPTS: Concepts = (("dog", "dogs"), ("kick", "kicked"), ("ball",))
WORDS = ("dog", "Dogs", "dogsled", "do", "KICK", "kicked", "kicker", "ball", "balls", "a", "café", "été", "_dog", "x1")
WORDS += ("\u212aick",)  # the Kelvin sign is a K in another case
GAPS = (" ", ", ", ".", "\n", "-", "’", " 日本 ", "")


def texts(count: int) -> list[str]:
    """Random sentences of words near the keywords. A third of them hold every keyword, so that both verdicts occur."""
    rng, result = random.Random(7), ["", "dog", "dog kick ball", "ball kick dog", "dog. dog kicked-balls ball"]
    for number in range(count):
        words = rng.choices(WORDS, k=rng.randrange(1, 7))
        if number % 3 == 0:
            words += [rng.choice(forms) for forms in CONCEPTS]
        if number % 2:
            rng.shuffle(words)
        result.append("".join(word + rng.choice(GAPS) for word in words))
    return result


@pytest.mark.parametrize("ordered", [True, False])
def test_the_equal_pattern_has_exactly_the_language_of_the_keywords(ordered: bool) -> None:
    write = Pattern(UNICODE)
    pattern = re.compile(write.ordered(CONCEPTS) if ordered else write.unordered(CONCEPTS))
    automaton = compile_text(spec_from_json({"keywords": [list(forms) for forms in CONCEPTS], "ordered": ordered}))
    verdicts = []
    for text in texts(600):
        verdicts.append(check_text(automaton, text).satisfied)
        assert (pattern.fullmatch(text) is not None) == verdicts[-1], text
    assert 50 < sum(verdicts) < len(verdicts) - 50


def test_the_simpler_ordered_pattern_accepts_every_exact_match() -> None:
    exact, simpler = (re.compile(write(CONCEPTS)) for write in (Pattern(UNICODE).ordered, Pattern(UNICODE).subsequence))
    accepted = [text for text in texts(600) if exact.fullmatch(text)]
    assert accepted and all(simpler.fullmatch(text) for text in accepted)
    assert simpler.fullmatch("ball dog kick ball") and not exact.fullmatch("ball dog kick ball")


def test_the_ascii_pattern_agrees_on_ascii_texts() -> None:
    unicode, ascii_only = (re.compile(Pattern(alphabet).unordered(CONCEPTS)) for alphabet in (UNICODE, ASCII))
    for text in filter(str.isascii, texts(600)):
        assert (unicode.fullmatch(text) is None) == (ascii_only.fullmatch(text) is None), text


def test_keyword_sets_have_single_words_of_one_concept_each(tmp_path: Path) -> None:
    rows = [
        [["a", "b"], ["c"], ["d"]],
        [["a"], ["a"], ["b"]],  # a form in two concepts
        [["t-shirt"], ["b"], ["c"]],  # not one word
        [["e"], ["f"], ["g"], ["h"], ["i"]],
    ]
    dev = tmp_path / "dev.jsonl"
    dev.write_text("\n".join(json.dumps({"inflections": row}) for row in rows), encoding="utf-8")
    assert keyword_sets(dev, 3, 1) == [(("a", "b"), ("c",), ("d",))]
    assert keyword_sets(dev, 8, 1) == [(("e",), ("f",), ("g",), ("h",), ("i",), ("a", "b"), ("c",), ("d",))]
    with pytest.raises(ValueError, match="fewer than 2"):
        keyword_sets(dev, 3, 2)


def test_first_concepts_share_no_form(tmp_path: Path) -> None:
    dev = tmp_path / "dev.jsonl"
    rows = [[["a", "b"], ["c"], ["d"]], [["b"], ["e"], ["f"]]]
    dev.write_text("\n".join(json.dumps({"inflections": row}) for row in rows), encoding="utf-8")
    assert first_concepts(dev, 4) == (("a", "b"), ("c",), ("d",), ("e",))
    with pytest.raises(ValueError, match="fewer than 7"):
        first_concepts(dev, 7)


def test_the_suite_has_at_least_forty_readable_constraints(shared: Path) -> None:
    rows = suite(shared)
    assert len(rows) >= 40
    for row in rows:
        spec_from_json(dict(row.constraint))


def test_every_engine_gets_an_expression_it_supports(shared: Path) -> None:
    for row in suite(shared):
        for engine, expression in row.peers.items():
            assert expression.kind in ("regex", "json_schema") or (engine, expression.kind) == ("llguidance", "lark")
            if expression.kind == "regex":
                re.compile(expression.text)
            if expression.kind == "json_schema":
                json.loads(expression.text)


def test_a_row_for_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="guidance2"):
        CompileCase("a", "b", {"regex": "a"}, {"guidance2": Expression("regex", "a")})


def test_one_expression_serves_all_engines_but_the_exceptions() -> None:
    expression, exception = Expression("regex", "a"), Expression("regex", "b")
    assert for_all(expression) == dict.fromkeys(PEERS, expression)
    but = {"xgrammar": exception, "llguidance": None}
    assert for_all(expression, but=but) == {"outlines_core": expression, "xgrammar": exception}


def samples(automaton: TextAutomaton, count: int, rng: random.Random) -> list[str]:
    """Random accepted texts.

    A walk over bytes is random for some steps and then takes the shortest way to acceptance.
    """
    tokens, result = automaton.byte_automaton, []
    for _ in range(count):
        state, text, random_steps = tokens.start, b"", rng.randrange(60)
        while tokens.distance[state] > 1 or (random_steps and rng.random() < 0.9):
            successors = tokens.successors(state)[tokens.token_class[:256]]
            to_go = tokens.distance[successors]
            closer = to_go < tokens.distance[state] if not random_steps else to_go < UNREACHABLE
            choices = closer.nonzero()[0].tolist()
            if not choices:
                break
            random_steps = max(0, random_steps - 1)
            text += bytes([rng.choice(choices)])
            state = int(successors[text[-1]])
        result.append(text.decode())
    return result


def perturb(text: str, rng: random.Random) -> str:
    """The text with one character left out, doubled or replaced."""
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(("", text[at : at + 1] * 2, "x", " ", "7", ".", "\n")) + text[at + 1 :]


def same_language_rows(shared: Path) -> list[tuple[CompileCase, str]]:
    """The rows that some engine writes as an equivalent regex."""
    result = []
    for row in suite(shared):
        patterns = {peer.text for peer in row.peers.values() if peer.kind == "regex" and not peer.note}
        result += [(row, pattern) for pattern in sorted(patterns)]
    return result


def test_an_unmarked_regex_has_the_language_of_its_constraint(shared: Path) -> None:
    rng, rows, verdicts = random.Random(11), same_language_rows(shared), []
    for row, pattern in rows:
        try:
            automaton = compile_text(spec_from_json(dict(row.constraint)))
        except LimitExceeded:
            continue  # the benchmark reports it
        peer_pattern = re.compile(pattern)
        accepted = samples(automaton, 12, rng)
        for text in (*accepted, *(perturb(text, rng) for text in accepted)):
            verdicts.append(check_text(automaton, text).satisfied)
            assert (peer_pattern.fullmatch(text) is not None) == verdicts[-1], (row.name, text)
    assert len(rows) > 30 and 300 < sum(verdicts) < len(verdicts) - 100


@pytest.mark.parametrize("chars", TEMPLATE_CHARS)
def test_a_scale_template_has_its_length_and_compiles(chars: int) -> None:
    assert len(template(chars)) == chars
    automaton = compile_text(spec_from_json({"infill": template(chars)}))
    assert check_text(automaton, re.sub(r"<\|infill_word\|>", "town", template(chars))).satisfied


def test_the_points_of_the_scale_run_are_valid_constraints(shared: Path) -> None:
    assert len({(point.series, point.size, point.vocabulary) for point in points(shared)}) == len(list(points(shared)))
    for point in points(shared):
        spec_from_json(dict(point.constraint))
