"""Our LTLf translator beside MONA, on the formulas of the tests and on larger ones of the same families.

    python -m benchmarks.ltlf [--repeats 3]

On one core, in one process; medians. Three times for each formula: ours, from text to minimal automaton; MONA's
process alone, from its start to its end, on LTLf2DFA's program; and the whole of that engine: LTLf2DFA's parser and
translation, MONA, and its guards expanded over the letters. The automata are compared as well. Writes
results/ltlf.json beside this file and prints its table. MONA is looked for as the tests do: on PATH, else unpacked
from Debian's package.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.measure import pin_to_one_core
from benchmarks.places import RESULTS_DIRECTORY
from compiler.automata import Dfa
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import formula_to_dfa, formula_to_dfa_mona, parse_formula
from compiler.ltlf.mona_program import ltlf2dfa_program
from tests.references.formula_suite import Case, larger, suite
from tests.references.mona_oracle import mona_itself

RESULT = RESULTS_DIRECTORY / "ltlf.json"
ROOMY = Limits(formula_chars_max=100_000, propositions_max=100, compile_s_max=60)
WORST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """One formula: milliseconds of ours, of MONA's process, and of the whole engine around it; and the states."""

    case: Case
    native_ms: float
    process_ms: float
    engine_ms: float
    states: int


@dataclass(frozen=True, slots=True)
class Row:
    """The sums of one family, or of all of them. `ahead`: on how many formulas ours beats MONA's process alone."""

    family: str
    formulas: int
    states_max: int
    native_ms: float
    process_ms: float
    engine_ms: float
    process_over_native: float
    engine_over_native: float
    geometric_mean: float
    ahead: int


def median_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


def timing(case: Case, binary: str, directory: Path, repeats: int) -> Timing:
    """Raises ValueError where the two automata differ: a measurement of a wrong answer is none."""

    def native() -> Dfa:
        return formula_to_dfa(parse_formula(case.source, ResourceGuard(ROOMY)), case.letters, ResourceGuard(ROOMY))

    def engine() -> Dfa:
        formula = parse_formula(case.source, ResourceGuard(ROOMY))
        return formula_to_dfa_mona(formula, case.letters, ResourceGuard(ROOMY), binary=binary)

    def process() -> None:
        with answer.open("wb") as sink:
            subprocess.run([binary, "-q", "-u", "-w", str(source)], stdout=sink, cwd=directory, check=True)

    source, answer = directory / "formula.mona", directory / "answer"
    source.write_text(ltlf2dfa_program(parse_formula(case.source, ResourceGuard(ROOMY))), encoding="ascii")
    ours, theirs = native(), engine()
    for one, other in ((ours.next_state, theirs.next_state), (ours.accepting, theirs.accepting)):
        if not np.array_equal(one, other):
            raise ValueError(f"the engines differ on {case.source}")
    return Timing(
        case, median_ms(native, repeats), median_ms(process, repeats), median_ms(engine, repeats), ours.states
    )


def row(family: str, timings: Sequence[Timing]) -> Row:
    native, process, engine = (
        sum(getattr(one, name) for one in timings) for name in ("native_ms", "process_ms", "engine_ms")
    )
    ratios = [one.process_ms / one.native_ms for one in timings]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    ahead = sum(ratio > 1 for ratio in ratios)
    states = max(one.states for one in timings)
    return Row(
        family, len(timings), states, native, process, engine, process / native, engine / native, mean, ahead
    )  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"{'family':24}{'formulas':>9}{'states':>8}{'ours ms':>10}{'MONA ms':>10}{'engine ms':>11}"
        f"{'MONA/ours':>11}{'engine/ours':>13}{'geo. mean':>11}{'ahead':>7}"
    ]
    for one in rows:
        lines.append(
            f"{one.family:24}{one.formulas:9}{one.states_max:8}{one.native_ms:10.1f}{one.process_ms:10.1f}"
            f"{one.engine_ms:11.1f}{one.process_over_native:11.2f}{one.engine_over_native:13.2f}"
            f"{one.geometric_mean:11.2f}{one.ahead:7}"
        )
    return "\n".join(lines)


def report(timings: Sequence[Timing]) -> list[Row]:
    """A row for each family, then all formulas, then all but the chains of U, on which MONA explodes."""
    families = list(dict.fromkeys(one.case.family for one in timings))
    rows = [row(family, [one for one in timings if one.case.family == family]) for family in families]
    tame = [one for one in timings if one.case.family != "chains of U"]
    return [*rows, row("all", timings), row("all but chains of U", tame)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    pin_to_one_core()
    binary, environment = mona_itself()
    os.environ.update(environment)
    with tempfile.TemporaryDirectory() as directory:
        cases = [*suite(), *larger()]
        timing(cases[0], binary, Path(directory), 1)  # what is loaded once is loaded now
        timings = [timing(case, binary, Path(directory), args.repeats) for case in cases]
    rows = report(timings)
    worst = sorted(timings, key=lambda one: one.process_ms / one.native_ms)[:WORST_SHOWN]
    about: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "command": shlex.join(["python", "-m", "benchmarks.ltlf", *sys.argv[1:]]),
        "repeats": args.repeats,
        "load_before": load,  # others on the machine slow the start of a process more than they slow us
    }
    losses = [
        {"family": one.case.family, "formula": one.case.source, "letters": len(one.case.letters), "states": one.states,
         "native_ms": one.native_ms, "process_ms": one.process_ms, "engine_ms": one.engine_ms} for one in worst
    ]  # fmt: skip
    text = json.dumps(about | {"rows": [asdict(one) for one in rows], "least_ahead": losses}, indent=1) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    print(table(rows))
    for one in worst:
        print(f"least ahead: {one.native_ms:.1f} against {one.process_ms:.1f} ms on {one.case.source[:80]}")


if __name__ == "__main__":
    main()
