"""MONA as an engine: its programs, its output and its failures. See test_differential too."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compiler.automata import Dfa
from compiler.errors import CompileCancelled, EngineFailure, LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import LtlfFormula, formula_to_dfa, formula_to_dfa_mona, mona
from compiler.ltlf.mona import run_mona
from compiler.ltlf.mona_program import ltlf2dfa_program, ltlf2dfa_text, program_operators
from tests.compiler.ltlf.test_progression import parse
from tests.references.dfa import assert_same
from tests.references.formula_suite import singletons, suite
from tests.references.mona_oracle import mona_binary
from tests.references.mona_program import mona_program
from tests.references.random_formulas import LETTERS
from tests.tables import rows

PATIENT = Limits(compile_s_max=60)


def ours(formula: LtlfFormula, letters: Sequence[frozenset[str]]) -> Dfa:
    return formula_to_dfa(formula, letters, ResourceGuard(PATIENT))


def theirs(formula: LtlfFormula, letters: Sequence[frozenset[str]], binary: str) -> Dfa:
    return formula_to_dfa_mona(formula, letters, ResourceGuard(PATIENT), binary=binary)


@pytest.fixture(scope="session")
def binary() -> str:
    return mona_binary()


def test_many_guard_lines_are_expanded_over_the_letters(binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"w{index}" for index in range(7)]
    formula = parse(" & ".join(f"F {name}" for name in names))
    monkeypatch.setattr(mona, "_CELLS", 100)  # so that the 2,187 lines take many blocks
    assert_same(ours(formula, singletons(names)), theirs(formula, singletons(names), binary))


def test_concurrent_compilations_do_not_mix_their_automata(binary: str) -> None:
    formulas = [parse("X " * count + "a") for count in range(12)]
    with ThreadPoolExecutor(len(formulas)) as threads:
        result = threads.map(lambda formula: theirs(formula, LETTERS, binary).states, formulas)
        assert list(result) == [ours(formula, LETTERS).states for formula in formulas]


@pytest.mark.parametrize("write", [ltlf2dfa_program, mona_program])
def test_the_mona_program_contains_no_proposition_names(write: Callable[[LtlfFormula], str]) -> None:
    program = write(parse('F "pred x; include" & G(all1 -> "max($)") & F "pred x; include"'))
    assert "include" not in program and "all1 ->" not in program and "pred" not in program
    assert "var2 P0, P1, P2;" in program


def test_the_second_translation_is_written_without_recursion() -> None:
    assert mona_program(parse(" U ".join("ab"[index % 2] for index in range(3_000)))).count("ex1") == 2_999


# --- LTLf2DFA -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "text"), rows("ltlf", "formulas_are_printed_in_the_syntax_of_ltlf2dfa"))
def test_formulas_are_printed_in_the_syntax_of_ltlf2dfa(source: str, text: str) -> None:
    assert ltlf2dfa_text(parse(source)) == text


def test_the_program_omits_the_formula_comment() -> None:
    program = ltlf2dfa_program(parse(" & ".join(f"F(a{number} & X b)" for number in range(40))))
    assert program.startswith("var2 $") and "#" not in program


def test_a_formula_whose_comment_mona_could_not_read_is_compiled(binary: str) -> None:
    names = [f"p{index}" for index in range(5)]
    parts = [f"G({a} -> !F {b})" for a in names for b in names] * 20  # 10 kB
    formula = parse(" & ".join([*parts, "F p0"]))
    assert_same(ours(formula, singletons(names)), theirs(formula, singletons(names), binary))


@pytest.mark.parametrize(
    "source",
    [
        "G " * 60 + "a",
        "(" * 30 + "a" + " <-> b)" * 30,
        "(" * 20 + "a" + " W b)" * 20 + " & " + "(" * 20 + "a" + " M b)" * 20,
    ],
)
def test_an_exponential_program_is_refused_before_it_is_written(source: str) -> None:
    with pytest.raises(EngineFailure, match="more than 20000 operators"):
        ltlf2dfa_program(parse(source))


def test_a_formula_too_deep_for_ltlf2dfa_is_an_engine_failure() -> None:
    with pytest.raises(EngineFailure, match="nested too deeply"):
        ltlf2dfa_program(parse(" U ".join("ab"[index % 2] for index in range(5_000))))


def test_the_operator_estimate_bounds_the_program_size() -> None:
    for case in suite():
        formula = parse(case.source)
        assert len(ltlf2dfa_program(formula)) <= 160 * program_operators(formula), case.source


# --- the program ----------------------------------------------------------------------------------------------------


def fake(directory: Path, script: str) -> str:
    path = directory / "mona"
    path.write_text(f"#!{sys.executable}\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


READABLE = (
    "DFA for formula with free variables: P0 \nInitial state: 0\nAccepting states: 1 \nRejecting states: 0 \n\n"
    "Automaton has 2 states and 1 BDD-node\n"
)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; print('Error near line 3'); print('Execution aborted'); sys.exit(255)", "255: Error near line 3"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
        ("print('no automaton here')", "no list of states"),
        ("", "no list of states"),
        (f"print({READABLE!r}.replace('P0', 'P7').replace('P0', '') + 'State 0: X -> state 1')", "guard of the wrong"),
        (f"print({READABLE!r})", "transitions are missing"),
        (f"print({READABLE!r} + 'State 0: XX -> state 1')", "guard of the wrong length"),
        (f"print({READABLE!r} + 'State 0: X -> state 1\\nState 1: 0 -> state 1')", "transitions are missing"),
        (f"print({READABLE!r} + 'State 0: X -> state 1\\nState 1: X -> state 7')", "does not exist"),
        (f"print({READABLE!r} + 'State 9: X -> state 1')", "does not exist"),
        (f"print({READABLE!r}.replace('1 \\nRej', '9 \\nRej'))", "does not exist"),
    ],
)
def test_a_failure_of_mona_is_an_engine_failure(script: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(EngineFailure, match=message):
        theirs(parse("a"), LETTERS, fake(tmp_path, script))


def test_a_missing_program_is_an_engine_failure(tmp_path: Path) -> None:
    for binary in (str(tmp_path / "mona"), str(tmp_path)):
        with pytest.raises(EngineFailure, match=r"cannot be started: .*; install it .*apt install mona"):
            theirs(parse("a"), LETTERS, binary)


def test_an_endless_output_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mona, "OUTPUT_BYTES_MAX", 100_000)
    with pytest.raises(EngineFailure, match="longer than 100000 bytes"):
        theirs(parse("a"), LETTERS, fake(tmp_path, "while True: print('x' * 1000)"))


def test_a_timed_out_run_leaves_no_process_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    note = tmp_path / "child"
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "compile_s_max"):
        formula_to_dfa_mona(parse("a"), LETTERS, ResourceGuard(Limits(compile_s_max=2)), binary=fake(tmp_path, script))
    assert is_gone(int(note.read_text(encoding="utf-8")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "mona"]


def test_child_processes_of_a_program_are_ended_with_it(tmp_path: Path) -> None:
    note = tmp_path / "child"
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))"
    )
    assert run_mona(fake(tmp_path, script), "", ResourceGuard(PATIENT)) == b""
    assert is_gone(int(note.read_text(encoding="utf-8")))


def test_a_program_gets_no_more_memory_than_its_cap(tmp_path: Path) -> None:
    script = (  # once it is up; the cap is set as soon as it is started
        "import time; time.sleep(0.3)\n"
        "try: bytearray(2**30)\n"
        "except MemoryError: print('none left'); raise SystemExit(3)"
    )
    with pytest.raises(EngineFailure, match="exit status 3: none left"):
        run_mona(fake(tmp_path, script), "", ResourceGuard(Limits(compile_memory_bytes_max=300 * 2**20)))


def test_a_formula_over_the_memory_cap_meets_its_limit(binary: str) -> None:
    limits = Limits(compile_memory_bytes_max=100 * 2**20, compile_s_max=600)  # the machine may be busy
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "compile_memory_bytes_max"):
        formula_to_dfa_mona(parse("F(a & " + "X " * 24 + "b)"), LETTERS, ResourceGuard(limits), binary=binary)


def test_a_cancelled_compile_ends_mona(tmp_path: Path) -> None:
    cancellations = iter([False, False, True])
    with pytest.raises(CompileCancelled):
        run_mona(
            fake(tmp_path, "import time; time.sleep(600)"), "", ResourceGuard(PATIENT, lambda: next(cancellations))
        )


@pytest.mark.parametrize(
    ("limits", "limit"),
    [(Limits(dfa_states_max=1_000), "dfa_states_max"), (Limits(table_bytes_max=10_000), "table_bytes_max")],
)
def test_an_automaton_from_mona_over_the_limits_is_refused(limits: Limits, limit: str, binary: str) -> None:
    formula = parse("F(a & " + "X " * 10 + "b)")
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == limit):
        formula_to_dfa_mona(formula, LETTERS, ResourceGuard(limits), binary=binary)


def is_gone(pid: int) -> bool:
    """Waits until a process is gone or a zombie and returns True. The new parent collects it at an unknown time."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
