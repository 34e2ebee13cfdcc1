"""Compares our translation of LTLf formulas with MONA's.

The formulas are those of the tests and larger ones of the same families.

    python -m benchmarks.compiler.ltlf [--repeats 3]

On one core, in one process, medians. Three times are measured for each formula: our translation, from the text to the
minimal automaton; MONA's process alone, from start to end, on the program of LTLf2DFA; and the engine around it:
LTLf2DFA's parser and translation, MONA, and the expansion of its guards over the letters. The automata must be equal.
MONA is looked for as in the tests: on PATH, else unpacked from Debian's package. Writes results/ltlf.json and
RESULTS.md, and prints its table.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.memory import pin_to_one_core
from benchmarks.report import write_run
from benchmarks.runs import Row, parser_of
from compiler.automata import Dfa
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import formula_to_dfa, formula_to_dfa_mona, parse_formula
from compiler.ltlf.mona_program import ltlf2dfa_program
from tests.references.formula_suite import Case, larger, suite
from tests.references.mona_oracle import mona_binary_path

LIMITS = Limits(formula_chars_max=100_000, propositions_max=100, compile_s_max=60)
WORST_COUNT = 5


@dataclass(frozen=True, slots=True)
class FormulaTiming:
    """Timings of one formula, in milliseconds, and its number of states.

    Our translation, MONA's process, and the engine around it are timed.
    """

    case: Case
    native_ms: float
    process_ms: float
    engine_ms: float
    states: int

    @property
    def ratio(self) -> float:
        """MONA's process over our translation."""
        return self.process_ms / self.native_ms


def median_ms(work: Callable[[], object], repeats: int) -> float:
    """The median time of some work, with garbage collection as usual."""
    return statistics.median(timeit.repeat(work, "gc.enable()", number=1, repeat=repeats)) * 1e3


def time_formula(case: Case, binary: str, directory: Path, repeats: int) -> FormulaTiming:
    """Raises ValueError if the two automata differ."""

    def native() -> Dfa:
        return formula_to_dfa(parse_formula(case.source, ResourceGuard(LIMITS)), case.letters, ResourceGuard(LIMITS))

    def engine() -> Dfa:
        formula = parse_formula(case.source, ResourceGuard(LIMITS))
        return formula_to_dfa_mona(formula, case.letters, ResourceGuard(LIMITS), binary=binary)

    def process() -> None:
        with (directory / "output").open("wb") as output:
            subprocess.run([binary, "-q", "-u", "-w", str(program)], stdout=output, cwd=directory, check=True)

    program = directory / "formula.mona"
    program.write_text(ltlf2dfa_program(parse_formula(case.source, ResourceGuard(LIMITS))), encoding="ascii")
    ours, theirs = native(), engine()
    if not np.array_equal(ours.next_state, theirs.next_state) or not np.array_equal(ours.accepting, theirs.accepting):
        raise ValueError(f"the engines differ on {case.source}")
    native_ms, process_ms, engine_ms = (median_ms(work, repeats) for work in (native, process, engine))
    return FormulaTiming(case, native_ms, process_ms, engine_ms, ours.states)


def sum_up(family: str, timings: Sequence[FormulaTiming]) -> Row:
    """The sums of a family, or of all. "ahead": formulas on which our translation beats MONA's process alone."""
    native, process, engine = (
        sum(getattr(timing, name) for timing in timings) for name in ("native_ms", "process_ms", "engine_ms")
    )
    return {
        "family": family, "formulas": len(timings), "states_max": max(timing.states for timing in timings),
        "native_ms": native, "process_ms": process, "engine_ms": engine, "process_over_native": process / native,
        "engine_over_native": engine / native,
        "geometric_mean": statistics.geometric_mean(timing.ratio for timing in timings),
        "ahead": sum(timing.ratio > 1 for timing in timings),
    }  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """The table as it is printed."""
    lines = [
        f"{'family':24}{'formulas':>9}{'states':>8}{'ours ms':>10}{'MONA ms':>10}{'engine ms':>11}"
        f"{'MONA/ours':>11}{'engine/ours':>13}{'geo. mean':>11}{'ahead':>7}"
    ]
    for row in rows:
        lines.append(
            "{family:24}{formulas:9}{states_max:8}{native_ms:10.1f}{process_ms:10.1f}{engine_ms:11.1f}"
            "{process_over_native:11.2f}{engine_over_native:13.2f}{geometric_mean:11.2f}{ahead:7}".format_map(row)
        )
    return "\n".join(lines)


def family_rows(timings: Sequence[FormulaTiming]) -> list[Row]:
    """A row for each family and two totals.

    One total has all formulas, the other omits the chains of U, on which MONA explodes.
    """
    families = list(dict.fromkeys(timing.case.family for timing in timings))
    rows = [sum_up(family, [timing for timing in timings if timing.case.family == family]) for family in families]
    without_chains = [timing for timing in timings if timing.case.family != "chains of U"]
    return [*rows, sum_up("all", timings), sum_up("all but chains of U", without_chains)]


def main() -> None:
    parser = parser_of(__doc__, shared=False)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    pin_to_one_core()
    binary, environment = mona_binary_path()
    os.environ.update(environment)
    with tempfile.TemporaryDirectory() as directory:
        cases = [*suite(), *larger()]
        time_formula(cases[0], binary, Path(directory), 1)  # loads everything that is loaded once
        timings = [time_formula(case, binary, Path(directory), args.repeats) for case in cases]
    rows = family_rows(timings)
    worst = sorted(timings, key=lambda timing: timing.ratio)[:WORST_COUNT]
    least_ahead = [
        {"family": timing.case.family, "formula": timing.case.source, "letters": len(timing.case.letters),
         "states": timing.states, "native_ms": timing.native_ms, "process_ms": timing.process_ms,
         "engine_ms": timing.engine_ms} for timing in worst
    ]  # fmt: skip
    print(table(rows))
    for timing in worst:
        formula = timing.case.source[:80]
        print(f"least ahead: {timing.native_ms:.1f} against {timing.process_ms:.1f} ms on {formula}")
    write_run("ltlf", {
        "repeats": args.repeats,
        "load_before": load,  # other processes slow the start of a process more than they slow our translation
        "rows": rows,
        "least_ahead": least_ahead,
    })  # fmt: skip


if __name__ == "__main__":
    main()
