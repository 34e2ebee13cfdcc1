"""Plants faults in a copy of the code, one at a time, and records which test finds each.

    python -m tests.tools.planted_faults --record          # once: which test files reach which fault
    python -m tests.tools.planted_faults                   # each fault against the test files that reach it
    python -m tests.tools.planted_faults --whole           # those that are not found, against all other test files

The faults are in planted_faults.toml. Names after the options choose some of them; with --record, they are the
beginnings of test files' paths. `--tree` tests the last commit of another clone, such as one from before a change. What
is done is not repeated: its records are in `--results`, a folder.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools import fault_probes

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_suffix(".toml")
PACKAGES = ("compiler", "decoding", "app")
RUN_S_MAX = 1800.0  # of one run of pytest: a fault may end in a loop
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
_NO_TESTS = 5  # exit status of pytest


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake in one file of the service.

    before, after  the text that occurs once, and what replaces it
    tests          folders of tests that reach a fault outside Python
    """

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = ()

    def plant(self, text: str) -> str:
        """The file's text with the fault. Raises ValueError where `before` does not occur once."""
        if text.count(self.before) != 1:
            raise ValueError(f"{self.name}: its text occurs {text.count(self.before)} times in {self.file}")
        return text.replace(self.before, self.after)

    def probe(self, text: str) -> str:
        """The file's text with a note at the beginning of the function that has the fault."""
        at = text.index(self.before)
        line = 1 + text.count("\n", 0, at + len(self.before) - len(self.before.lstrip()))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
        function = max(
            (node for node in functions if node.lineno <= line <= (node.end_lineno or 0)), key=lambda node: node.lineno
        )
        first = function.body[ast.get_docstring(function) is not None]
        lines = text.splitlines(keepends=True)
        lines.insert(first.lineno - 1, f'{" " * first.col_offset}__import__("fault_probes").reach("{self.name}")\n')
        return "".join(lines)


def read_faults(path: Path = FAULTS) -> list[Fault]:
    """The faults of a file."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    return [Fault(**{**entry, "tests": tuple(entry.get("tests", ()))}) for entry in entries]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of pytest, with the processor time of all processes that it waited for. `failed`: tests."""

    status: int
    failed: list[str]
    cpu_s: float
    wall_s: float


class Copy:
    """A clone of a tree with an environment of its own, which imports the clone's packages in every process."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.path = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", "--shared", str(tree), str(self.path)], check=True)
        venv.create(self.path / ".venv", symlinks=True)
        self._bin, site = self.path / ".venv" / "bin", next((self.path / ".venv").glob("lib/python*/site-packages"))
        # The files of our environment, without its own path files: one of them names the tree that is installed.
        (site / "clone.pth").write_text(f"{self.path}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        shutil.copy(fault_probes.__file__, site)
        self.reached = site / "reached"
        ours = Path(sys.executable).parent
        for program in [each for each in ours.iterdir() if not (self._bin / each.name).exists()]:
            content = program.read_bytes()
            if content.startswith(b"#!"):
                content = content.replace(str(ours).encode(), str(self._bin).encode(), 1)
            (self._bin / program.name).write_bytes(content)
            (self._bin / program.name).chmod(0o755)
        self._environment = {"ABS_SHARED": str(tree.parent / "shared"), **os.environ, "OMP_NUM_THREADS": "1"}
        self._environment.pop("PYTHONPATH", None)
        code = f"import {', '.join(PACKAGES)}; print(*[each.__file__ for each in ({', '.join(PACKAGES)},)])"
        imported = subprocess.check_output([self._bin / "python", "-c", code], cwd="/", text=True)
        assert all(file.startswith(f"{self.path}/") for file in imported.split()), imported

    @property
    def test_files(self) -> list[str]:
        """All test files of the clone."""
        return sorted(str(path.relative_to(self.path)) for path in self.path.glob("tests/**/test_*.py"))

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """A file has another text within the body."""
        before = (self.path / file).read_text(encoding="utf-8")
        (self.path / file).write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            (self.path / file).write_text(before, encoding="utf-8")

    def pytest(self, *arguments: str) -> Run:
        """Run tests in the clone."""
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [self._bin / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        with subprocess.Popen(
            command, cwd=self.path, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=RUN_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Run(process.returncode, _FAILED.findall(output), round(cpu_s, 1), round(time.monotonic() - started, 1))


def record(copy: Copy, faults: Sequence[Fault], beginnings: tuple[str, ...], path: Path) -> dict[str, Any]:
    """Run the test files of each folder. Returns which faults each file reaches in all of its processes."""
    reach = _read(path)
    for fault in faults:
        if not fault.tests:
            file = copy.path / fault.file
            file.write_text(fault.probe(file.read_text(encoding="utf-8")), encoding="utf-8")
    waiting = [each for each in copy.test_files if each.startswith(beginnings) and each not in reach]
    for _, files in itertools.groupby(waiting, os.path.dirname):
        run = copy.pytest("-p", fault_probes.__name__.rpartition(".")[2], *(in_folder := list(files)))
        for test_file in in_folder:
            notes = copy.reached / test_file.replace("/", "+")
            names = {each.name for each in notes.iterdir()} if notes.exists() else set[str]()
            cpu_s = float((notes / "cpu_s").read_text()) if "cpu_s" in names else 0.0
            reach[test_file] = {"cpu_s": cpu_s, "reaches": sorted(names - {"cpu_s"})}
        _write(path, reach)
        print(f"{len(in_folder)} files up to {in_folder[-1]}: status {run.status}, {run.cpu_s} s", flush=True)
    return reach


def files_that_reach(fault: Fault, reach: dict[str, Any], test_files: list[str]) -> list[str]:
    """The test files that reach a fault. Those of its own sub-package come first, then the cheapest."""
    own = "/".join(["tests", *fault.file.split("/")[:2]])
    reaching = [each for each in test_files if each.startswith(fault.tests)] if fault.tests else [
        each for each in test_files if fault.name in reach.get(each, {}).get("reaches", ())
    ]  # fmt: skip
    return sorted(reaching, key=lambda each: (not each.startswith(own), reach.get(each, {}).get("cpu_s", 0.0)))


def find(copy: Copy, fault: Fault, test_files: Sequence[str]) -> dict[str, Any]:
    """Run test files up to the first test that fails with the fault, and not without it."""
    text = fault.plant((copy.path / fault.file).read_text(encoding="utf-8"))
    runs, failing_anyway, found = list[Run](), list[str](), None
    waiting, count = list(test_files), 4
    while waiting and found is None:
        with copy.changed(fault.file, text):
            run = copy.pytest("-x", *(f"--deselect={each}" for each in failing_anyway), *waiting[:count])
        runs.append(run)
        if run.status in (0, _NO_TESTS):
            waiting, count = waiting[count:], 2 * count
        elif not run.failed:
            found = f"pytest ended with {run.status}"
        else:
            test = run.failed[0]
            runs.append(copy.pytest(test))
            if runs[-1].status == 0:
                found = test
            else:  # it fails without the fault, too, and so finds nothing
                failing_anyway.append(test)
    return {
        "found_by": found, "failing_anyway": failing_anyway, "files": len(test_files),
        "cpu_s": round(sum(run.cpu_s for run in runs), 1), "wall_s": round(sum(run.wall_s for run in runs), 1),
    }  # fmt: skip


def summary(faults: Sequence[Fault], results: dict[str, Any]) -> Iterator[str]:
    """Lines of a Markdown table: by package, how many faults are found."""
    yield "| package | planted | run | found | processor time | not found |\n|---|---|---|---|---|---|"
    for package in PACKAGES:
        names = [fault.name for fault in faults if fault.file.startswith(f"{package}/")]
        run = {name: results[name] for name in names if name in results}
        missed = [name for name, result in run.items() if result["found_by"] is None]
        minutes = sum(result["cpu_s"] for result in run.values()) / 60
        found = len(run) - len(missed)
        yield f"| `{package}` | {len(names)} | {len(run)} | {found} | {minutes:.0f} min | {', '.join(missed)} |"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--results", type=Path, default=ROOT / ".cache" / "planted_faults")
    options = parser.parse_args()
    faults, names = read_faults(), tuple(options.names)
    reach_path, found_path = options.results / "reach.json", options.results / "found.json"
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Copy(options.tree.resolve(), Path(folder).resolve())
        if options.record:
            record(copy, faults, names or ("",), reach_path)
            return
        reach, results = _read(reach_path), _read(found_path)
        for fault in [fault for fault in faults if not names or fault.name in names]:
            earlier = results.get(fault.name)
            files = files_that_reach(fault, reach, copy.test_files)
            if options.whole and earlier and earlier["found_by"] is None and not earlier.get("whole"):
                files = [each for each in copy.test_files if each not in files]
            elif options.whole or earlier:
                continue
            results[fault.name] = find(copy, fault, files) | {"whole": options.whole}
            _write(found_path, results)
            print(f"{fault.name}: {results[fault.name]}", flush=True)
        print(*summary(faults, results), sep="\n")


if __name__ == "__main__":
    main()
