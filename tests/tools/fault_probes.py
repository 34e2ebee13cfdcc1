"""Notes which test files reach a function with a planted fault.

planted_faults.py copies this module into the environment of its clone. There it is a plugin of pytest, and the
functions with faults call `reach`. Notes are empty files beside it: reached/tests+FOLDER+FILE/FAULT.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("reached")
_noted = set[tuple[str, str]]()
_cpu_s = dict[str, float]()  # by test file
_running, _since = "", 0.0  # the test file in the process of pytest; empty in the processes that tests start


def reach(fault: str) -> None:
    """Note a fault for the running test file."""
    with contextlib.suppress(OSError):
        test_file = _running or os.readlink(FOLDER / "running")
        if (test_file, fault) not in _noted:
            _noted.add((test_file, fault))
            (FOLDER / test_file / fault).touch()


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):  # its code outside functions runs now
        _begin(collector.nodeid)


def pytest_runtest_logstart(nodeid: str) -> None:
    _begin(nodeid)


def pytest_sessionfinish() -> None:
    _begin("end")


def _begin(nodeid: str) -> None:
    global _running, _since
    test_file, now = nodeid.partition("::")[0].replace("/", "+"), sum(os.times()[:4])
    if test_file == _running:
        return
    if _running:
        _cpu_s[_running] = _cpu_s.get(_running, 0.0) + now - _since
        (FOLDER / _running / "cpu_s").write_text(f"{_cpu_s[_running]:.1f}")
    _running, _since = test_file, now
    (FOLDER / test_file).mkdir(parents=True, exist_ok=True)
    (FOLDER / "next").symlink_to(test_file)
    (FOLDER / "next").replace(FOLDER / "running")
