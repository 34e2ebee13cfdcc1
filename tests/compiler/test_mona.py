"""MONA as the oracle of the translator, and how its failures are told."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler import mona
from compiler.dfa import Dfa
from compiler.errors import EngineFailure
from compiler.limits import Limits, Meter
from compiler.ltlf import formula_to_dfa
from compiler.ltlf_syntax import Formula
from compiler.mona import formula_to_dfa_mona, mona_program
from tests.compiler.test_ltlf import (
    CLOTHES,
    CLOTHES_LETTERS,
    FIGURE_1,
    ORDERED,
    ORDERED_LETTERS,
    ROWS,
    assert_same,
    one_hot,
    parse,
)
from tests.mona_oracle import mona_binary
from tests.random_formulas import LETTERS, random_formula

PATIENT = Limits(compile_s_max=60)


def ours(formula: Formula, letters: Sequence[frozenset[str]]) -> Dfa:
    return formula_to_dfa(formula, letters, Meter(PATIENT))


def theirs(formula: Formula, letters: Sequence[frozenset[str]], binary: str) -> Dfa:
    return formula_to_dfa_mona(formula, letters, Meter(PATIENT), binary=binary)


@pytest.fixture(scope="session")
def binary() -> str:
    return mona_binary()


PAPER = {
    "clothing": (CLOTHES, CLOTHES_LETTERS),
    "ordered": (ORDERED, ORDERED_LETTERS),
    "figure 1": (FIGURE_1, one_hot("coffee", "cat", "toy", "eos", "nomatch")),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_s_specifications_have_the_automata_that_mona_gives(name: str, binary: str) -> None:
    source, letters = PAPER[name]
    formula = parse(source)
    assert_same(ours(formula, letters), theirs(formula, letters, binary))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_formula_of_the_table_has_the_automaton_that_mona_gives(row: dict[str, object], binary: str) -> None:
    formula = parse(str(row["formula"]))
    assert_same(ours(formula, LETTERS), theirs(formula, LETTERS, binary))


@pytest.mark.parametrize("seed", range(10))
def test_random_formulas_have_the_automata_that_mona_gives(seed: int, binary: str) -> None:
    rng = random.Random(1_000 + seed)
    for _ in range(10):
        formula = parse(random_formula(rng))
        letters = rng.sample(LETTERS, rng.randint(1, 5)) if rng.random() < 0.5 else LETTERS
        assert_same(ours(formula, letters), theirs(formula, letters, binary))


def test_many_guard_lines_are_expanded_over_the_letters(binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"w{index}" for index in range(7)]
    formula = parse(" & ".join(f"F {name}" for name in names))
    monkeypatch.setattr(mona, "_CELLS", 100)  # so that the 2,187 lines take many blocks
    assert_same(ours(formula, one_hot(*names)), theirs(formula, one_hot(*names), binary))


def test_compilations_at_the_same_time_do_not_get_each_other_s_automaton(binary: str) -> None:
    sources = ["X " * count + "a" for count in range(12)]
    states: dict[int, int] = {}

    def work(count: int) -> None:
        states[count] = theirs(parse(sources[count]), LETTERS, binary).states

    threads = [threading.Thread(target=work, args=(count,)) for count in range(len(sources))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {count: ours(parse(source), LETTERS).states for count, source in enumerate(sources)}
    assert states == expected


def test_the_program_never_holds_a_user_s_name() -> None:
    program = mona_program(parse('F "pred x; include" & G(all1 -> "max($)") & F "pred x; include"'))
    assert "include" not in program and "all1 ->" not in program and "max" not in program
    assert "var2 P0, P1, P2;" in program


def test_a_long_chain_is_written_without_recursion() -> None:
    assert mona_program(parse(" U ".join("ab"[index % 2] for index in range(3_000)))).count("ex1") == 2_999


def fake(directory: Path, script: str) -> str:
    path = directory / "mona"
    path.write_text(f"#!{sys.executable}\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


READABLE = "Initial state: 0\nAccepting states: 1 \nRejecting states: 0 \n\nAutomaton has 2 states and 1 BDD-node\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; print('Error near line 3'); print('Execution aborted'); sys.exit(255)", "255: Error near line 3"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
        ("print('no automaton here')", "no list of states"),
        ("", "no list of states"),
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
        with pytest.raises(EngineFailure, match="cannot be started"):
            theirs(parse("a"), LETTERS, binary)


def test_an_answer_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mona, "OUTPUT_BYTES_MAX", 100_000)
    with pytest.raises(EngineFailure, match="longer than 100000 bytes"):
        theirs(parse("a"), LETTERS, fake(tmp_path, "while True: print('x' * 1000)"))


def test_a_run_out_of_time_leaves_no_process_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    note = tmp_path / "child"
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    with pytest.raises(EngineFailure, match="did not finish within 2 s"):
        formula_to_dfa_mona(parse("a"), LETTERS, Meter(Limits(compile_s_max=2)), binary=fake(tmp_path, script))
    assert ended(int(note.read_text(encoding="utf-8")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "mona"]


def ended(pid: int) -> bool:
    """True once the process is gone or a zombie; waits, since its new parent collects it in its own time."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
