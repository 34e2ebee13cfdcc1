"""Inflections of common words and of the words of the CommonGen references."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import lemminflect
import pytest
from lemminflect.codecs.InflectionLUCodec import InflectionLUCodec
from lemminflect.codecs.LemmaLUCodec import LemmaLUCodec

from compiler.errors import EngineFailure
from compiler.forms import inflections as inflect
from compiler.forms.inflections import inflections
from tests.tables import rows


@pytest.mark.parametrize(("form", "others"), rows("forms", "a_word_has_these_forms"))
def test_a_word_has_these_forms(form: str, others: str) -> None:
    result = inflections(form)
    assert result[0] == form and list(result[1:]) == sorted(result[1:])
    assert set(others.split()) <= set(result[1:])
    assert set(result[1:]) - set(others.split()) <= {"dog", "gos", "runnings"}


def test_a_form_of_several_lemmas_has_the_forms_of_all() -> None:
    assert {"leaf", "leave", "left", "leaving"} <= set(inflections("leaves"))
    assert {"see", "seen", "sawed", "saws"} <= set(inflections("saw"))


@pytest.mark.parametrize(("phrase", "holds", "lacks"), rows("forms", "a_phrase_inflects_its_last_word_or_phrasal_verb"))
def test_a_phrase_inflects_its_last_word_or_phrasal_verb(phrase: str, holds: str, lacks: str) -> None:
    result = inflections(phrase)
    assert result[0] == phrase and holds in result and lacks not in result


@pytest.mark.parametrize(("form", "other"), rows("forms", "forms_follow_the_case_of_the_word"))
def test_forms_follow_the_case_of_the_word(form: str, other: str) -> None:
    assert other in inflections(form)


def test_the_word_stands_once_and_first() -> None:
    for form in ("dog", "Dog", "dogs", "ran", "pick up", "  run ", "!", ""):
        result = inflections(form)
        assert result[0] == form and len(set(result)) == len(result)


def test_the_inflection_package_is_loaded_lazily() -> None:
    script = "import sys, compiler.forms.inflections; print('lemminflect' in sys.modules)"
    root = Path(__file__).parents[3]
    process = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "False"


def test_lazily_parsed_tables_equal_the_packages_tables() -> None:
    inflect._dictionary()
    lemmatizer, inflector = lemminflect.Lemmatizer(), lemminflect.Inflections()
    whole_lemmas = LemmaLUCodec.load(lemmatizer.lemma_lu_fn)
    whole_forms = InflectionLUCodec.load(inflector.infl_lu_fn)
    for ours, table in ((lemmatizer.lemma_dict, whole_lemmas), (inflector.infl_dict, whole_forms)):
        words = list(table)
        for word in (words[0], words[-1], "can", "be", "left", *words[::50]):
            assert ours.get(word, {}) == table.get(word, {})
        for no_word in ("", "zorb", "dog,noun", "dog\ncat", ","):
            assert ours.get(no_word, {}) == {}


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original_import = builtins.__import__

    def import_without_package(name: str, *positional: Any, **keywords: Any) -> Any:
        if name == "lemminflect":
            raise ImportError(name)
        return original_import(name, *positional, **keywords)

    inflect._dictionary.cache_clear()
    inflect._forms.cache_clear()
    monkeypatch.setattr(builtins, "__import__", import_without_package)
    with pytest.raises(EngineFailure, match="lemminflect"):
        inflections("dog")


def test_nearly_all_forms_that_commongen_lists_are_found(shared: Path) -> None:
    rows = [json.loads(line) for line in (shared / "data/commongen/dev.jsonl").read_text(encoding="utf-8").splitlines()]
    pairs = [pair for row in rows for pair in zip(row["concepts"], row["inflections"], strict=True)]
    pairs_listed = [(concept, form) for concept, forms in pairs for form in forms]
    result = [(concept, form) for concept, form in pairs_listed if form in inflections(concept)]
    assert len(result) / len(pairs_listed) > 0.998
