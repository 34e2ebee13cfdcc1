"""The syntax of a grammar that names none."""

from __future__ import annotations

import pytest

from compiler.grammars import likely_syntax
from tests.tables import rows


@pytest.mark.parametrize(("text", "syntax"), rows("grammars", "a_rule_with_two_colons_and_equals_is_ebnf"))
def test_a_rule_with_two_colons_and_equals_is_ebnf(text: str, syntax: str) -> None:
    assert likely_syntax(text) == syntax
