"""`make pythons` on a machine without other interpreters."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import pythons


def test_a_run_without_any_interpreter_is_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def uv(*arguments: str) -> str:
        raise subprocess.CalledProcessError(2, arguments)

    monkeypatch.setattr(pythons, "uv", uv)
    assert pythons.main(tmp_path) == 3
    assert "Python 3.12: not run, for want of an interpreter" in capsys.readouterr().out
