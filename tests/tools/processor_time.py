"""Measures the processor time of each test and its processes.

The dearest tests and files are printed at the end of a run. Each report of a test carries the seconds since the report
before. Fork servers are no children of the test process and are counted with it. What processes take between two tests
counts for the later one.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator

import psutil
import pytest

from tests.servers import forkserver, quick_sandbox

SHOWN, SHOWN_S_MIN = 40, 0.5  # rows of each list, and the seconds of a row
PHASE_S_MIN = 0.2  # after a shorter phase only this process is read: a list of all processes takes 4 ms
PROPERTY = "processor_s"


class ProcessorTimes:
    """A plugin that measures in each test process and prints once."""

    def __init__(self) -> None:
        self._own_s = time.process_time()
        self._others_s: dict[int, float] = {}  # by the process at the root
        self._tests: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        earlier_s, self._own_s = self._own_s, time.process_time()
        spent_s = self._own_s - earlier_s
        if call.duration > PHASE_S_MIN:
            roots = (os.getpid(), *forkserver.pids(), quick_sandbox.parent_of_sandboxes())
            spent_s += sum(self._of_others(root) for root in roots if root is not None)
        report.user_properties.append((PROPERTY, spent_s))
        return report

    def _of_others(self, root: int) -> float:
        """Seconds of a process's descendants since the last call. A fork server's own are included."""
        try:
            process = psutil.Process(root)
            own = process.cpu_times()
            total_s = own.children_user + own.children_system
            total_s += own.user + own.system if root != os.getpid() else 0
            for child in process.children(recursive=True):
                total_s += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:  # it ended in between
            return 0
        earlier_s, self._others_s[root] = self._others_s.get(root, 0.0), total_s
        return max(0.0, total_s - earlier_s)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        processor_s, wall_s = self._tests[report.nodeid]
        spent_s = dict(report.user_properties).get(PROPERTY, 0.0)
        assert isinstance(spent_s, float)
        self._tests[report.nodeid] = (processor_s + spent_s, wall_s + report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        for test, (processor_s, wall_s) in self._tests.items():
            file = test.partition("::")[0]
            files[file] = (files[file][0] + processor_s, files[file][1] + wall_s)
        total_s = sum(processor_s for processor_s, _ in files.values())
        terminalreporter.section(f"{total_s:.0f} s of processor time in tests")
        for name, rows in (("files", files), ("tests", self._tests)):
            terminalreporter.write_line(f"processor and wall time in seconds of the {SHOWN} dearest {name}")
            dearest = sorted(rows.items(), key=lambda row: row[1], reverse=True)[:SHOWN]
            for key, (processor_s, wall_s) in (row for row in dearest if row[1][0] >= SHOWN_S_MIN):
                terminalreporter.write_line(f"{processor_s:8.1f} {wall_s:8.1f}  {key}")
