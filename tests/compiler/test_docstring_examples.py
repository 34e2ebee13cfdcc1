"""The examples in the compiler's docstrings, run."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.test_imports import modules

WITH_EXAMPLES = {  # the main functions and classes: these show how they are called
    "compiler.automata.characters.minterms",
    "compiler.automata.counting.count_dfa",
    "compiler.automata.dfa.Dfa",
    "compiler.automata.dfa.minimize",
    "compiler.automata.minimization.refine",
    "compiler.automata.products.intersection",
    "compiler.codec.encode",
    "compiler.lifting.construction.lift",
    "compiler.lifting.token_automaton.TokenAutomaton",
    "compiler.limits.ResourceGuard",
    "compiler.ltlf.bdd.MonotoneBdd",
    "compiler.ltlf.past.formula_to_dfa",
    "compiler.ltlf.dialects.glued_operators", "compiler.ltlf.parsing.parse_formula",
    "compiler.pipeline.compile_spec",
    "compiler.pipeline.compile_text",
    "compiler.regex.native.pattern_dfa",
    "compiler.spec.parse.spec_from_json",
    "compiler.text.checks.check_text",
    "compiler.vocab.vocabulary.Vocabulary",
}
MODULES = [name for name, path in modules("compiler").items() if ">>>" in path.read_text("utf-8")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), raise_on_error=False).failed == 0


def test_the_main_functions_have_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    docstring_tests = (finder.find(importlib.import_module(name)) for name in MODULES)
    assert {test.name for tests in docstring_tests for test in tests if test.examples} >= WITH_EXAMPLES
