"""The tasks' cases, the figures of their answers, and their reports."""

from __future__ import annotations

import contextlib
import random
import re
import statistics
from pathlib import Path

import pytest
from rich.progress import Progress

from app.models import open_model_files
from benchmarks.decoding.decode import satisfies
from benchmarks.report.results_page import stored_runs
from benchmarks.report.tasks import COMMONGEN_HEAD, commongen_section, infilling_section
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import SYSTEMS, Entry
from benchmarks.systems.process import Questioner, SystemAnswer
from benchmarks.tasks.concept_sets import PROMPTS, concept_constraint, concept_sets
from benchmarks.tasks.gapped_stories import PROMPT_WORDS, gapped_stories, mask
from benchmarks.tasks.truncation import TIMES, patterns, truncation_row
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec

CONCEPTS = (("dog", "dogs"), ("run", "runs", "ran"))
SENTENCES = [["One", "day,", "a", "dog", "ran", "home."], ["He", "saw", "an", "old,", "very", "old", "cat", "there."]]


def test_the_hundred_patterns_use_only_portable_syntax() -> None:
    assert len(set(patterns())) == 100
    assert not [pattern for pattern in patterns() if re.search(r"\\[wdsbWDSB]|\(\?|[^ -~]", pattern)]


def test_every_pattern_has_a_shortest_text(captions_dir: Path) -> None:
    vocabulary = open_model_files(str(captions_dir)).vocabulary
    least = [compile_spec(RegexSpec(pattern), vocabulary).tokens.min_tokens for pattern in patterns()]
    assert min(least) >= 3 and 4 * max(least) <= 256, "the built-in model reads no more"


class ScriptedDecoder:
    """A decoder with two scripted answers that fails with a large budget."""

    def __init__(self) -> None:
        self.budgets: list[int] = []

    def ask(self, constraint: TextConstraint, prompt: str, max_tokens: int) -> SystemAnswer:
        self.budgets.append(max_tokens)
        return SystemAnswer(" ab" if max_tokens > 4 else "a", 0.5, 1.5, "" if max_tokens < 8 else "E: x")


def test_every_budget_is_measured_and_its_answers_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = ScriptedDecoder()
    monkeypatch.setattr("benchmarks.systems.process.run_system", lambda *_, **__: contextlib.nullcontext(decoder))
    progress = Progress(disable=True)
    row = truncation_row("XGrammar", {"a?b": 2, "ab": 4}, Questioner(1, 1.0, progress))
    assert row is not None and progress.finished
    assert progress.tasks[0].total == 2 * len(TIMES)
    assert decoder.budgets == [40, 2, 4, 2, 5, 3, 6, 4, 8, 6, 12, 8, 16]  # the first of all counts for nothing
    result = [(entry["satisfied"], entry["failed"], entry["ms"]) for entry in row["by_times"]]
    assert result == [(0, 0, 2), (1, 0, 2), (1, 0, 2), (0, 1, 2), (1, 1, 2), (0, 2, 2)]
    assert row["missed"][0] == {"pattern": "a?b", "budget": 2, "text": "a", "error": ""}


def test_a_missing_decoder_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "unknown", Entry("nowhere:Unknown", "an-environment-of-unknown"))
    assert truncation_row("unknown", {"a": 2}, Questioner(1, 1.0, Progress(disable=True))) is None


def test_only_a_leading_space_is_ignored_in_answers() -> None:
    assert satisfies("ab", " ab") and not satisfies("ab", "  ab") and not satisfies("ab", "ab\n")


def test_pattern_parts_and_concepts_are_equivalent() -> None:
    any_order, ordered = concept_constraint(CONCEPTS, ordered=False), concept_constraint(CONCEPTS, ordered=True)
    for text, both, in_order in (
        ("A dog runs.", True, True), ("He ran with Dogs", True, False), ("ran dog ran", True, True),
        ("a hotdog runs", False, False), ("dog", False, False), ("dog run2", False, False),
    ):  # fmt: skip
        assert (re.fullmatch(any_order.pattern, text) is not None) == both, text
        assert all(re.fullmatch(part, text) for part in any_order.parts) == both, text
        assert (re.fullmatch(ordered.pattern, text) is not None) == in_order, text


def test_concept_sets_span_the_split_and_appear_in_prompts(shared: Path) -> None:
    result = concept_sets(shared / "data" / "commongen" / "dev.jsonl", PROMPTS["captions"], 50, ordered=True)
    assert len({case.name for case in result}) == 50 and all(case.references for case in result)
    first = result[0]
    assert first.prompt == f"concepts: {', '.join(first.concepts)}\nsentence:"
    assert first.constraint.ordered and len(first.constraint.concepts) == len(first.concepts)


def test_concepts_count_by_lemma_or_listed_form_and_in_order() -> None:
    metrics = pytest.importorskip("benchmarks.tasks.text_metrics")
    forms = (("dog", "dogs"), ("look",))
    assert metrics.concepts_covered("Two DOGS looked up", ("dog", "look"), forms) == 2  # no list has "looked"
    assert metrics.concepts_covered("a hotdog", ("dog", "look"), forms) == 0
    assert metrics.leading_concepts("He looks at dogs", ("dog", "look"), forms) == 1
    assert metrics.leading_concepts("The dog looks at dogs", ("dog", "look"), forms) == 2


def test_an_unknown_model_is_refused_and_captions_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("benchmarks.tasks.text_metrics")
    from benchmarks.tasks.commongen import main, sort_key

    monkeypatch.delenv("ABS_MODEL", raising=False)
    monkeypatch.setattr("sys.argv", ["commongen", "--models", "other"])
    with pytest.raises(SystemExit):
        main()
    rows = [{"model": model, "family": "f", "system": "XGrammar"} for model in ("gpt2-large", "captions")]
    assert min(rows, key=sort_key)["model"] == "captions"


@pytest.mark.parametrize(
    ("system", "bleu", "cider"), [("UniLM", 30.4, 15.7), ("BART", 27.5, 14.1),
                                  ("constrained Levenshtein Transformer", 15.0, 8.9)]
)  # fmt: skip
def test_published_outputs_have_their_known_scores(shared: Path, system: str, bleu: float, cider: float) -> None:
    pytest.importorskip("benchmarks.tasks.text_metrics")
    from benchmarks.tasks.commongen import published_scores

    row = next(row for row in published_scores(shared) if row["system"] == system)
    assert row["bleu_4"] == pytest.approx(bleu, abs=0.1)
    assert row["cider"] == pytest.approx(cider, abs=0.1)


def test_the_report_omits_a_missing_log_prob() -> None:
    run = stored_runs()["commongen"]
    run["rows"] = [run["rows"][0] | {"system": "s", "log_prob": None}]
    (line,) = (line for line in commongen_section(run).splitlines() if line.startswith("| s |"))
    assert line.split("|")[COMMONGEN_HEAD.index("nats") + 1].strip() == ""


@pytest.mark.parametrize("seed", range(40))
def test_a_masked_text_matches_its_pattern_and_keeps_its_prompt(seed: int) -> None:
    story = mask(SENTENCES, 0.3, random.Random(seed))
    assert story.prompt.split() == SENTENCES[0][:PROMPT_WORDS]
    assert story.prompt + story.text == " ".join(word for sentence in SENTENCES for word in sentence)
    assert re.fullmatch(story.pattern, story.text) and not re.fullmatch(story.pattern, story.text[:-1])
    assert 0 < story.masked <= 0.3 + 1 / 14
    assert mask(SENTENCES, 0.3, random.Random(seed)) == story


def test_the_mean_share_of_masked_words_is_as_configured(shared: Path) -> None:
    path = shared / "data" / "stories" / "tinystories_1000.jsonl"
    for share in (0.1, 0.3):
        result = gapped_stories(path, 40, share)
        assert all(re.fullmatch(story.pattern, story.text) for story in result)
        assert statistics.fmean(story.masked for story in result) == pytest.approx(share, abs=0.03)
    with pytest.raises(ValueError, match="fewer than"):
        gapped_stories(path, 2000, 0.1)


def test_coverage_counts_matching_answers_scored_with_their_prompt() -> None:
    pytest.importorskip("benchmarks.tasks.text_metrics")
    from benchmarks.tasks.infilling import infilling_row

    story = mask(SENTENCES, 0.3, random.Random(1))
    result = [SystemAnswer(story.text, 1.0, 2.0, ""), SystemAnswer("", 1.0, 4.0, "E: x")]
    row = infilling_row({"model": "m"}, [story, story], result)
    assert (row["coverage"], row["errors"], row["error"], row["answer_ms"]) == (0.5, 1, "E: x", 2.0)
    assert infilling_row({}, [story], result[:1])["bleu_4"] == pytest.approx(100.0)
    stripped_answers = [result[0]._replace(text=story.text.strip())]  # as some tokenizers decode it
    assert infilling_row({}, [story], stripped_answers)["coverage"] == 1.0


def test_the_report_counts_the_answers_that_failed() -> None:
    run = stored_runs()["infilling"]
    run["rows"] = [run["rows"][0] | {"errors": 1}]
    assert " % (1 failed) |" in infilling_section(run)
