"""Packages that a test takes from the package index."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

S_MAX = 60.0


def pip_install(purpose: str, *arguments: str) -> None:
    """Run `pip install` without dependencies.

    Where no package index answers, the test fails in CI; elsewhere it is skipped.
    """
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=S_MAX)
    if done.returncode:
        sentence = f"{purpose} needs a package index, and pip finds none that answers: {done.stderr.strip()[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
