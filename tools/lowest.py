"""Tests the lowest versions that pyproject.toml allows: python -m tools.lowest FOLDER

Makes an environment in FOLDER with the lowest version of each direct dependency of the service, PyTorch as it is locked
and what the tests need, then runs the demo and the tests that need nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.lock import CUDA, EXTRAS, ROOT, uv

# The versions of locks/ write openapi.json; older ones describe three schemas with fewer words.
OF_THE_LOCK = "tests/app/api/test_openapi.py::test_the_committed_document_is_fresh"
TESTED = (
    "tests/client", "tests/app/api", "tests/app/broker", "tests/app/messages", "tests/app/observability",
    "tests/app/redis", "tests/app/store", "tests/app/test_settings.py", "tests/compiler", "tests/decoding",
)  # fmt: skip
TOOLS = (
    "anyio", "hatchling", "hypothesis", "jsonschema[format-nongpl]", "lark", "mypy", "psutil", "pytest",
    "pytest-xdist", "pyyaml",
)  # fmt: skip
LEFT_OUT = (
    # Suites of other projects, whose cases depend on our code alone.
    "tests/compiler/grammars/test_suites.py", "tests/compiler/json_schema/test_official_suite.py",
    # The lowest transformers cannot split models, and the service then says so.
    "tests/decoding/model/test_process_groups.py", "tests/decoding/model/test_shared_adapters.py",
    "tests/decoding/model/test_tensor_parallel.py",
)  # fmt: skip


def run_tests(python: Path, tests: tuple[str, ...]) -> int:
    """Runs pytest in two processes. Returns 0 if all pass, else 1."""
    options = ("--quiet", "--numprocesses", "2", "-p", "no:cacheprovider", "--deselect", OF_THE_LOCK)
    left_out = [f"--ignore={path}" for path in LEFT_OUT]
    variables = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
    command = (str(python), "-m", "pytest", *options, *left_out, *tests)
    return int(subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode != 0)


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    excluded, lowest, python = folder / "excluded.txt", folder / "lowest.txt", folder / "bin" / "python"
    uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
    excluded.write_text("\n".join(CUDA), encoding="utf-8")
    extras = [f"--extra={extra}" for extra in (*EXTRAS["inference"], "up")]
    resolution = ("--resolution", "lowest-direct", "--no-emit-package", "torch", "--excludes", str(excluded))
    uv("pip", "compile", "--quiet", "--python-version", "3.11", *resolution, *extras, "pyproject.toml",
       "--output-file", str(lowest))  # fmt: skip
    into = ("pip", "install", "--quiet", "--python", str(python))
    uv(*into, "--no-deps", "--requirement", str(lowest))
    uv(*into, "--constraint", str(lowest), *TOOLS)
    uv(*into, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps")
    subprocess.run((*pip, "--requirement", "locks/torch.txt"), cwd=ROOT, check=True)
    subprocess.run((folder / "bin" / "abs", "demo"), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return run_tests(python, TESTED)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve()))
