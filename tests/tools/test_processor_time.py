"""Tests are measured with their processes, and the dearest come first."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

from tests.tools.processor_time import PHASE_S_MIN, PROPERTY, ProcessorTimes

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def phase_s(times: ProcessorTimes, duration_s: float = 2 * PHASE_S_MIN) -> float:
    """The seconds that the report of a phase carries which ends now."""
    report, hook = SimpleNamespace(user_properties=[]), times.pytest_runtest_makereport(_call(duration_s))
    next(hook)
    try:
        hook.send(report)  # type: ignore[arg-type]
    except StopIteration:
        return float(dict(report.user_properties)[PROPERTY])
    raise AssertionError("the hook yields once")


def _call(duration_s: float) -> Any:
    return SimpleNamespace(duration=duration_s)


def test_running_and_ended_children_count_once() -> None:
    times = ProcessorTimes()
    phase_s(times)
    command = [sys.executable, "-S", "-c", BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        while_it_runs_s = phase_s(times)
        child.communicate("\n")
    assert while_it_runs_s >= 0.25 and phase_s(times) < 0.2


def test_own_time_counts_in_short_phases_too() -> None:
    times, began = ProcessorTimes(), time.process_time()
    while time.process_time() < began + 0.05:
        pass
    assert 0.04 < phase_s(times, duration_s=0.05) < 0.2


def test_the_dearest_files_and_tests_come_first() -> None:
    times, lines = ProcessorTimes(), list[str]()
    for test, spent_s in (("a.py::one", 1.0), ("b.py::two", 4.0), ("a.py::three", 3.5), ("a.py::one", 1.0)):
        report: Any = SimpleNamespace(nodeid=test, user_properties=[(PROPERTY, spent_s)], duration=0.5)
        times.pytest_runtest_logreport(report)
    reporter: Any = SimpleNamespace(section=lines.append, write_line=lines.append)
    times.pytest_terminal_summary(reporter)
    assert lines[0] == "10 s of processor time in tests"
    assert [line.split() for line in lines[2:4]] == [["5.5", "1.5", "a.py"], ["4.0", "0.5", "b.py"]]
    assert [line.split()[2] for line in lines[5:]] == ["b.py::two", "a.py::three", "a.py::one"]
