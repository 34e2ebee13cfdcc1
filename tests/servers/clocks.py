"""Clocks that jump while processes run. A process started with such a clock reads its time from a file.

libfaketime is loaded into the process before the C library and answers all calls for the time. As with a change of the
system clock, the monotonic clock is not affected.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

KEEP = "import os, sys; print(os.environ['FAKETIME_SHARED'], flush=True); sys.stdin.read()"
PACKAGED = "vendor/libfaketime/src/libfaketime.so.1"


def library() -> Path:
    """ABS_FAKETIME, else what the package libfaketime brings; skips where there is neither.

    That of Debian 12, 0.9.10, will not do: under it Python's `time.sleep` fails from 3.11 on.
    """
    configured = os.environ.get("ABS_FAKETIME")
    package = importlib.util.find_spec("libfaketime")  # only found: to import it would ask for more packages
    folders = package.submodule_search_locations if package is not None else None
    path = Path(configured) if configured else Path(folders[0], PACKAGED) if folders else None
    if path is None or not path.is_file():
        pytest.skip("no libfaketime 0.9.11 or newer: see tests/requirements-linux.txt, or name one by ABS_FAKETIME")
    return path


class Clocks:
    """Clocks by name, each right until it is stepped. `shared` is what libfaketime would make for each process."""

    def __init__(self, folder: Path, library: Path, shared: str) -> None:
        self._folder, self._library, self._shared = folder, library, shared
        self._ahead_s: Counter[str] = Counter()

    def of(self, name: str) -> dict[str, str]:
        """What the environment of a process has that goes by this clock."""
        self.step(0, name)
        return {
            "LD_PRELOAD": str(self._library), "FAKETIME_TIMESTAMP_FILE": str(self._folder / name),
            "FAKETIME_NO_CACHE": "1", "FAKETIME_SHARED": self._shared, "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1",
        }

    def step(self, seconds: int, *names: str) -> None:
        """Sets these clocks on, or back, by whole seconds."""
        for name in names:
            self._ahead_s[name] += seconds
            temporary = self._folder / f"{name}.new"
            temporary.write_text(f"{self._ahead_s[name]:+d}\n")
            temporary.replace(self._folder / name)

    def set_right(self) -> None:
        """Let all of them say again what time it is."""
        for name, ahead_s in list(self._ahead_s.items()):
            self.step(-ahead_s, name)


@contextlib.contextmanager
def clocks(folder: Path) -> Iterator[Clocks]:
    """Clocks whose files are in a folder. Skips where there is no libfaketime."""
    library_path = library()
    with subprocess.Popen(  # removes what it made when it ends; processes that are killed would leave theirs
        (sys.executable, "-c", KEEP), env={**os.environ, "LD_PRELOAD": str(library_path)}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as keeper:
        assert keeper.stdout is not None
        yield Clocks(folder, library_path, keeper.stdout.readline().strip())
