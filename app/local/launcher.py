"""Runs a program that ends with its parent process: python -m app.local.launcher.

    launcher SIGNAL PARENT COMMAND...    SIGNAL is sent to the program once its parent, the process PARENT, has ended

PARENT is needed because the parent may end before the launcher starts. The process that adopts the orphan would then
look like its parent. Only Linux signals a parent's end; elsewhere a killed parent leaves its programs running.
"""

from __future__ import annotations

import ctypes
import os
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # of Linux's prctl; inherited over exec


def launch(signal_number: int, parent: int, command: list[str]) -> None:
    """Replaces this process by the command. Raises OSError if it cannot be run."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal_number, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before prctl took effect
            os.kill(os.getpid(), signal_number)
    os.execvp(command[0], command)


if __name__ == "__main__":
    launch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
