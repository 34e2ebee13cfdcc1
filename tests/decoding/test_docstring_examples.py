"""The examples in docstrings of `decoding` run and print the results shown."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

from compiler.lifting import from_table
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import search_of
from tests.fake_models import HashModel
from tests.test_imports import modules

EXAMPLES_MIN = 14
MODEL = HashModel(3, (2,), seed=0)
AUTOMATON = from_table(  # accepts the ids 1, 0 and then EOS
    np.arange(3),
    np.array([[3, 1, 3], [2, 3, 3], [3, 3, 3], [3, 3, 3]]),
    np.array([False, False, True, False]),
    0,
    eos_ids=(2,),
)
NAMES = {
    "model": MODEL,
    "automaton": AUTOMATON,
    "new_search": lambda: search_of(PreparedConstraint.prepare(AUTOMATON, MODEL.device), SearchOptions(3, beams=2)),
}


@pytest.mark.parametrize("name", sorted(modules("decoding")))
def test_docstring_examples_print_their_results(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), extraglobs=NAMES).failed == 0


def test_the_main_classes_and_functions_have_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = [test for name in modules("decoding") for test in finder.find(importlib.import_module(name))]
    assert len({test.name for test in tests if test.examples}) >= EXAMPLES_MIN
