"""Engines are chosen by name, share an interface, and load lazily."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compiler.engines import NATIVE, Engines, open_engines
from compiler.errors import EngineFailure
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import parse_formula, require_ltlf2dfa
from compiler.regex import parse_pattern, require_fado
from tests.references.dfa import assert_same
from tests.references.mona_oracle import mona_binary
from tests.references.random_formulas import LETTERS
from tests.tables import rows

ROOT = Path(__file__).resolve().parents[2]
NATIVE_COMPILE = """
import sys
from compiler.engines import open_engines
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import parse_formula
from compiler.regex import parse_pattern
engines, guard = open_engines(), ResourceGuard(Limits())
engines.formula(parse_formula("F(a & X b)", guard), [frozenset("a"), frozenset("b")], guard)
engines.node(parse_pattern("(a|b)+c", guard), guard)
import compiler.pipeline
foreign = {"sympy", "ltlf2dfa", "lark", "FAdo"} & set(sys.modules)
sys.exit(f"loaded: {sorted(foreign)}" if foreign else 0)
"""


def guard() -> ResourceGuard:
    return ResourceGuard(Limits())


def test_native_engines_load_no_third_party_package() -> None:
    done = subprocess.run([sys.executable, "-c", NATIVE_COMPILE], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_native_engines_are_the_default() -> None:
    assert open_engines() == NATIVE == open_engines("native", "native")


@pytest.mark.parametrize(("names", "message"), rows("compiler", "an_unknown_name_is_refused_with_the_known_ones"))
def test_an_unknown_name_is_refused_with_the_known_ones(names: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_engines(**names)


def test_mona_is_chosen_for_formulas_alone() -> None:
    engines = open_engines(ltlf="mona", mona=mona_binary())
    assert engines.node is NATIVE.node
    formula = parse_formula("a U (b & X a)", guard())
    ours, theirs = (engine.formula(formula, LETTERS, guard()) for engine in (NATIVE, engines))
    assert_same(ours, theirs)


def test_a_missing_program_is_reported_when_it_is_chosen() -> None:
    with pytest.raises(EngineFailure, match="apt install mona"):
        open_engines(ltlf="mona", mona="/nowhere/mona")


def test_fado_is_chosen_for_patterns_alone() -> None:
    pytest.importorskip("FAdo", reason="FAdo is an optional oracle: make test installs it")
    engines = open_engines(regex="fado")
    assert engines.formula is NATIVE.formula
    dfa, parts = engines.node(parse_pattern("(a|b)*abb", guard()), guard())
    assert [dfa.accepts(parts.word(text)) for text in ("abb", "ababb", "", "ab", "abbc")] == [True, True] + 3 * [False]


@pytest.mark.parametrize(
    ("selection", "module", "message"), rows("compiler", "a_missing_package_is_reported_when_the_engine_is_chosen")
)
def test_a_missing_package_is_reported_when_the_engine_is_chosen(
    selection: dict[str, str], module: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_ltlf2dfa.cache_clear()
    require_fado.cache_clear()
    program = tmp_path / "mona"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EngineFailure, match=message):
        open_engines(**selection)


def test_both_engines_refuse_an_empty_list_of_letters() -> None:
    engines: Engines = open_engines(ltlf="mona", mona=mona_binary())
    for engine in (NATIVE, engines):
        with pytest.raises(ValueError, match="at least one letter"):
            engine.formula(parse_formula("a", guard()), [], guard())
