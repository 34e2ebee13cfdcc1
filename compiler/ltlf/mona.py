"""MONA as a second engine for formulas. It takes the same formulas and letters, and gives the same canonical DFA. Never
the only path.

Owns one run of the program and the reading of its answer. The run is private: no shell, a directory and a process
group of its own, a cap on its time, its memory and its answer, and no process and no file left behind. What MONA is
asked comes from `mona_program`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import select
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from compiler.automata import Dfa, minimize
from compiler.errors import CompileError, EngineFailure, LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf.mona_program import ltlf2dfa_program
from compiler.ltlf.syntax import LtlfFormula, propositions_of

OUTPUT_BYTES_MAX = 64 * 2**20  # ten keywords print 59,050 cube lines; past this the answer is of no use
_LOOK_MS = 50  # how often the guard is asked, and the answer measured, while MONA runs
_CELLS = 4_000_000  # cube lines x letters matched at once
_CUBE = re.compile(rb"^State (\d+): ([01X]*) -> state (\d+)$", re.MULTILINE)
_NAMES = re.compile(rb"^DFA for formula with free variables:([ P\d]*)$", re.MULTILINE)
_ACCEPTING = re.compile(rb"^Accepting states:([ \d]*)$", re.MULTILINE)
_COUNT = re.compile(rb"^Automaton has (\d+) states? and", re.MULTILINE)


def formula_to_dfa_mona(
    formula: LtlfFormula,
    letters: Sequence[frozenset[str]],
    guard: ResourceGuard,
    *,
    binary: str = "mona",
    program: Callable[[LtlfFormula], str] = ltlf2dfa_program,
) -> Dfa:
    """What `formula_to_dfa` returns, by way of MONA: `binary` is its path or a name on PATH.

    program  writes what MONA is asked; its P<i> holds where name i (of `propositions_of`) does
    Raises ValueError when there are no letters, EngineFailure when MONA is missing, fails or answers what cannot be
    read, LimitExceeded over compile_s_max or compile_memory_bytes_max (of MONA's own process), and over
    dfa_states_max or table_bytes_max once MONA is done.
    """
    if not letters:
        raise ValueError("an automaton needs at least one letter")
    output = run_mona(binary, program(formula), guard)
    return minimize(_read(output, propositions_of(formula), letters, guard), guard)


# --- program to output ----------------------------------------------------------------------------------------------


def run_mona(binary: str, program: str, guard: ResourceGuard) -> bytes:
    """MONA's output for a program. Raises EngineFailure as `formula_to_dfa_mona` does."""
    with tempfile.TemporaryDirectory(prefix="abs-mona-") as directory:
        source, answer = Path(directory, "formula.mona"), Path(directory, "answer")
        source.write_text(program, encoding="ascii")
        with answer.open("wb") as sink:
            try:
                process = subprocess.Popen(
                    [binary, "-q", "-u", "-w", str(source)],
                    stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd=directory, process_group=0,
                )  # fmt: skip
            except OSError as error:
                advice = "install it (Debian and Ubuntu: apt install mona), or choose the engine native"
                raise EngineFailure(f"the program MONA cannot be started: {error.strerror}; {advice}") from error
            try:
                # Before the first wait: the process has just started.
                _lower_limits(process.pid, guard.limits)
                _wait(process, answer, guard)
            finally:
                _kill(process)
        if process.returncode != 0:
            raise _failure(process.returncode, answer, guard.limits)
        return answer.read_bytes()


def _lower_limits(pid: int, limits: Limits) -> None:
    """Set resource limits on a process.

    They end the process even where the process that started it has died.
    """
    caps = {
        resource.RLIMIT_AS: limits.compile_memory_bytes_max,
        resource.RLIMIT_CPU: math.ceil(limits.compile_s_max) + 1,
        resource.RLIMIT_FSIZE: OUTPUT_BYTES_MAX + 1,
    }
    for kind, cap in caps.items():
        with contextlib.suppress(ProcessLookupError):  # it may be done already
            _, hard = resource.prlimit(pid, kind)
            lower = cap if hard == resource.RLIM_INFINITY else min(cap, hard)
            resource.prlimit(pid, kind, (lower, lower))


def _wait(process: subprocess.Popen[bytes], answer: Path, guard: ResourceGuard) -> None:
    """Wait for the end of the process, without collecting it.

    Raises what `guard.check_time` raises, and EngineFailure when the answer outgrows OUTPUT_BYTES_MAX.
    """
    handle = os.pidfd_open(process.pid)
    try:
        # A pidfd becomes readable when the process ends, and does not collect it: its number cannot be taken by
        # another process before `_kill`.
        watch = select.poll()
        watch.register(handle, select.POLLIN)
        ended = False
        while not ended:
            ended = bool(watch.poll(_LOOK_MS))
            guard.check_time()
            if answer.stat().st_size > OUTPUT_BYTES_MAX:
                raise EngineFailure(f"MONA's answer is longer than {OUTPUT_BYTES_MAX} bytes")
    finally:
        os.close(handle)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group, and collect the process.

    Until it is collected, no other process can take its number.
    """
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failure(status: int, answer: Path, limits: Limits) -> CompileError:
    """What MONA's end was due to, by its last words. They speak of our program, never of the user's text."""
    last = answer.read_bytes()[-400:].decode("ascii", "replace")
    # MONA reports a failed allocation itself; it is a limit of ours, not a fault of the engine.
    if "out of memory" in last:
        cap = limits.compile_memory_bytes_max
        return LimitExceeded("compile_memory_bytes_max", cap, cap)
    spoken = [line.strip() for line in last.split("\n") if line.strip() and "aborted" not in line]
    return EngineFailure(f"MONA failed with exit status {status}: {spoken[-1][:200] if spoken else 'no message'}")


# --- output to automaton --------------------------------------------------------------------------------------------


def _read(output: bytes, names: Sequence[str], letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    """The automaton that MONA printed, its cubes expanded over the letters. It is not minimal over them.

    MONA's state 0 reads one dummy symbol: the automaton proper starts at its successor (for an unsatisfiable formula
    that is 0 itself). MONA's automaton may accept the empty trace, which we reject: a new start state is added that
    does not accept and that no transition enters.
    """
    count, accepting_line, free = _COUNT.search(output), _ACCEPTING.search(output), _NAMES.search(output)
    if count is None or accepting_line is None or free is None:
        raise EngineFailure("MONA's answer cannot be read: no list of states")
    states = int(count[1])
    accepted = [int(state) for state in accepting_line[1].split()]
    cubes = [(int(source), cube, int(target)) for source, cube, target in _CUBE.findall(output)]
    # The program is not trusted: every number is checked before it indexes an array.
    if max([*accepted, *(end for source, _, target in cubes for end in (source, target))], default=0) >= states:
        raise EngineFailure("MONA's answer cannot be read: a state that does not exist")
    guard.check_table(states + 1, len(letters))
    accepting = np.zeros(states + 1, dtype=bool)
    accepting[accepted] = True
    # The new start's number marks entries that no cube has filled.
    table = np.full((states + 1, len(letters)), states, dtype=np.int32)
    columns = [int(number) for number in free[1].replace(b"P", b" ").split()]  # the cubes' columns, in MONA's order
    if any(len(cube) != len(columns) for _, cube, _ in cubes) or any(number >= len(names) for number in columns):
        raise EngineFailure("MONA's answer cannot be read: a guard of the wrong length")
    holds = [[names[number] in letter for number in columns] for letter in letters]
    _fill(table, cubes, np.array(holds, dtype=bool))
    if (table[:states] == states).any() or (table[0] != table[0, 0]).any():
        raise EngineFailure("MONA's answer cannot be read: transitions are missing")
    # The new start reads what the successor of MONA's state 0 reads.
    table[states] = table[table[0, 0]]
    return Dfa(np.arange(len(letters), dtype=np.int32), table, accepting, states)


def _fill(table: np.ndarray, cubes: list[tuple[int, bytes, int]], holds: np.ndarray) -> None:
    """Write the cubes' targets into `table` [S + 1, A]. A cube has a 0, 1 or X for each of the P propositions.

    holds  bool [A, P]: whether proposition p holds in letter a
    """
    wide = holds.astype(np.int32)
    block = max(1, _CELLS // len(holds))
    for begin in range(0, len(cubes), block):
        batch = cubes[begin : begin + block]
        marks = np.frombuffer(b"".join(cube for _, cube, _ in batch), dtype=np.uint8).reshape(len(batch), -1)
        # [G, A]: on how many propositions a cube and a letter disagree, as two matrix products.
        wrong = (marks == ord("1")).astype(np.int32) @ (1 - wide).T + (marks == ord("0")).astype(np.int32) @ wide.T
        line, letter = np.nonzero(wrong == 0)  # wrong [G, A]: propositions on which a cube and a letter disagree
        ends = np.array([(source, target) for source, _, target in batch], dtype=np.int32)
        table[ends[line, 0], letter] = ends[line, 1]
