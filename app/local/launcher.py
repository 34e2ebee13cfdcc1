"""Becomes another program that ends when its parent does, however that one ended: python -m app.local.launcher.

    launcher SIGNAL COMMAND...    SIGNAL is what the program is sent once its parent is gone

The system tells of a parent's end on Linux alone; elsewhere a parent that is killed leaves its programs behind.
"""

from __future__ import annotations

import ctypes
import os
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # of Linux's prctl; it stays in force over exec


def launch(signal_number: int, command: list[str]) -> None:
    """Become the command. Raises OSError where it cannot be run."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal_number, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we asked to be told
            os.kill(os.getpid(), signal_number)
    os.execvp(command[0], command)


if __name__ == "__main__":
    launch(int(sys.argv[1]), sys.argv[2:])
