"""MONA as a second engine: the same formulas and letters in, the same canonical DFA out. Never the only path.

Owns the program text, one run of the program and the reading of its answer. The translation is the textbook one into
first-order logic over the positions of a string (M2L-Str), straight from the formula: it shares nothing with the
translator in `ltlf`, so that each can check the other. No name of a user reaches MONA: proposition i is `P<i>`.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compiler.dfa import Dfa, minimize
from compiler.errors import EngineFailure
from compiler.limits import Meter
from compiler.ltlf_syntax import Formula, Node, Op, propositions_of

OUTPUT_BYTES_MAX = 64 * 2**20  # ten keywords print 59,050 guard lines; past this the answer is of no use
MEMORY_BYTES_MAX = 4 * 2**30  # of MONA's address space: it has been seen to take all a machine has
_CELLS = 4_000_000  # guard lines x letters matched at once
_GUARD = re.compile(rb"^State (\d+): ([01X]*) -> state (\d+)$", re.MULTILINE)
_ACCEPTING = re.compile(rb"^Accepting states:([ \d]*)$", re.MULTILINE)
_COUNT = re.compile(rb"^Automaton has (\d+) states? and", re.MULTILINE)


def formula_to_dfa_mona(
    formula: Formula, letters: Sequence[frozenset[str]], meter: Meter, *, binary: str = "mona"
) -> Dfa:
    """What `ltlf.formula_to_dfa` returns, by way of MONA: `binary` is its path or a name on PATH.

    Raises ValueError when there are no letters and EngineFailure when MONA is missing, fails, takes longer than
    compile_s_max or answers what cannot be read.
    """
    if not letters:
        raise ValueError("an automaton needs at least one letter")
    output = _run(binary, mona_program(formula), meter.limits.compile_s_max)
    return minimize(_read(output, propositions_of(formula), letters))


# --- formula to program ---------------------------------------------------------------------------------------------


def mona_program(formula: Formula) -> str:
    """The formula as a MONA program: the string's positions are the trace's steps, P<i> those where name i holds."""
    number = {name: index for index, name in enumerate(propositions_of(formula))}
    declared = f"var2 {', '.join(f'P{index}' for index in number.values())};\n" if number else ""
    pieces: list[str] = []
    variables = 0
    pending: list[str | tuple[int, str]] = [(formula.root, "0")]  # text, or a node to be said of a position
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        index, position = item
        fresh = (f"x{variables}", f"x{variables + 1}")
        variables += 2
        pending.extend(reversed(_said(formula.nodes[index], position, fresh, number)))
    return f"m2l-str;\n{declared}{''.join(pieces)};\n"


_INFIX = {Op.AND: "&", Op.OR: "|", Op.IMPLIES: "=>", Op.IFF: "<=>"}
# What an operator says of position {at}; [x] is the argument read at {x}, [y] the one read at {y}.
_TEMPORAL = {
    Op.NEXT: "(ex1 {x}: {x} = {at} + 1 & ([x]))",
    Op.WEAK_NEXT: "(all1 {x}: {x} = {at} + 1 => ([x]))",
    Op.FINALLY: "(ex1 {x}: {at} <= {x} & ([x]))",
    Op.GLOBALLY: "(all1 {x}: {at} <= {x} => ([x]))",
    Op.UNTIL: "(ex1 {x}: {at} <= {x} & ([x]) & (all1 {y}: {at} <= {y} & {y} < {x} => ([y])))",
    Op.RELEASE: "(all1 {x}: {at} <= {x} & ~([x]) => (ex1 {y}: {at} <= {y} & {y} < {x} & ([y])))",
    Op.WEAK_UNTIL: "(all1 {x}: {at} <= {x} & ~([x]) => (ex1 {y}: {at} <= {y} & {y} <= {x} & ([y])))",
    Op.STRONG_RELEASE: "(ex1 {x}: {at} <= {x} & ([x]) & (all1 {y}: {at} <= {y} & {y} <= {x} => ([y])))",
}
_ARGUMENT = re.compile(r"\[([xy])\]")


def _said(node: Node, at: str, fresh: tuple[str, str], number: dict[str, int]) -> list[str | tuple[int, str]]:
    """What a node says of the position `at`: text, with (argument, its position) where an argument is to be said.

    First-order variables range over the steps of the trace, so a step that does not exist satisfies no `ex1`.
    """
    x, y = fresh
    if node.op in (Op.TRUE, Op.FALSE):
        return [node.op.value]
    if node.op is Op.LAST:
        return [f"~(ex1 {x}: {at} < {x})"]
    if node.op is Op.NAME:
        return [f"{at} in P{number[node.name]}"]
    if node.op is Op.NOT:
        return ["~(", (node.args[0], at), ")"]
    said: list[str | tuple[int, str]] = []
    if node.op in _INFIX:
        for argument in node.args:
            said += [f")\n{_INFIX[node.op]} (" if said else "((", (argument, at)]
        return [*said, "))"]
    at_x, at_y = node.args[-1], node.args[0]
    if node.op in (Op.WEAK_UNTIL, Op.STRONG_RELEASE):
        at_x, at_y = at_y, at_x
    for piece in _ARGUMENT.split(_TEMPORAL[node.op]):
        said.append({"x": (at_x, x), "y": (at_y, y)}.get(piece) or piece.format(at=at, x=x, y=y))
    return said


# --- program to output ----------------------------------------------------------------------------------------------


def _run(binary: str, program: str, seconds: float) -> bytes:
    """MONA's output for a program. No shell, a directory and a process group of its own, nothing left behind."""
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
                raise EngineFailure(f"the program MONA cannot be started: {error.strerror}") from error
            try:
                status = _wait(process, answer, seconds)
            finally:
                _kill(process)
        if status != 0:
            raise EngineFailure(f"MONA failed with exit status {status}: {_last_line(answer)}")
        return answer.read_bytes()


def _wait(process: subprocess.Popen[bytes], answer: Path, seconds: float) -> int:
    """The exit status. Raises EngineFailure when the time is up or the answer outgrows OUTPUT_BYTES_MAX."""
    with contextlib.suppress(ProcessLookupError):  # it may be done already
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    deadline = time.monotonic() + seconds
    while True:
        try:
            status = process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            status = None
        if answer.stat().st_size > OUTPUT_BYTES_MAX:
            raise EngineFailure(f"MONA's answer is longer than {OUTPUT_BYTES_MAX} bytes")
        if status is not None:
            return status
        if time.monotonic() > deadline:
            raise EngineFailure(f"MONA did not finish within {seconds:g} s")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End what still runs of the process group, and collect the process. Once collected its number is not ours."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(answer: Path) -> str:
    """MONA's last words, cut to what a message can hold. They speak of our program, never of the user's text."""
    lines = answer.read_bytes()[-400:].decode("ascii", "replace").split("\n")
    spoken = [line.strip() for line in lines if line.strip() and "aborted" not in line]
    return spoken[-1][:200] if spoken else "no message"


# --- output to automaton --------------------------------------------------------------------------------------------


def _read(output: bytes, names: Sequence[str], letters: Sequence[frozenset[str]]) -> Dfa:
    """The automaton that MONA printed, its guards expanded over the letters; not minimal over them.

    MONA's state 0 reads one dummy symbol: the automaton proper starts at its successor (for an unsatisfiable formula
    that is 0 itself). It may accept the empty trace, which we reject: the start is made anew, entered by nothing.
    """
    count, accepting_line = _COUNT.search(output), _ACCEPTING.search(output)
    if count is None or accepting_line is None:
        raise EngineFailure("MONA's answer cannot be read: no list of states")
    states = int(count[1])
    accepted = [int(state) for state in accepting_line[1].split()]
    guards = [(int(source), guard, int(target)) for source, guard, target in _GUARD.findall(output)]
    if max([*accepted, *(end for source, _, target in guards for end in (source, target))], default=0) >= states:
        raise EngineFailure("MONA's answer cannot be read: a state that does not exist")
    accepting = np.zeros(states + 1, dtype=bool)
    accepting[accepted] = True
    table = np.full((states + 1, len(letters)), states, dtype=np.int32)
    if any(len(guard) != len(names) for _, guard, _ in guards):
        raise EngineFailure("MONA's answer cannot be read: a guard of the wrong length")
    _fill(table, guards, np.array([[name in letter for name in names] for letter in letters], dtype=bool))
    if (table[:states] == states).any() or (table[0] != table[0, 0]).any():
        raise EngineFailure("MONA's answer cannot be read: transitions are missing")
    table[states] = table[table[0, 0]]
    return Dfa(np.arange(len(letters), dtype=np.int32), table, accepting, states)


def _fill(table: np.ndarray, guards: list[tuple[int, bytes, int]], holds: np.ndarray) -> None:
    """Write the guards' targets into `table` [S + 1, A]. A guard has a 0, 1 or X for each of the P propositions.

    holds  bool [A, P]: whether proposition p holds in letter a
    """
    wide = holds.astype(np.int32)
    block = max(1, _CELLS // len(holds))
    for begin in range(0, len(guards), block):
        some = guards[begin : begin + block]
        marks = np.frombuffer(b"".join(guard for _, guard, _ in some), dtype=np.uint8).reshape(len(some), -1)
        wrong = (marks == ord("1")).astype(np.int32) @ (1 - wide).T + (marks == ord("0")).astype(np.int32) @ wide.T
        line, letter = np.nonzero(wrong == 0)  # wrong [G, A]: propositions on which a guard and a letter disagree
        ends = np.array([(source, target) for source, _, target in some], dtype=np.int32)
        table[ends[line, 0], letter] = ends[line, 1]
