"""Plants faults one at a time, and records which test finds each.

    python -m tests.tools.planted_faults --record          # once: which test files reach which fault
    python -m tests.tools.planted_faults                   # each fault against the test files that reach it
    python -m tests.tools.planted_faults --whole           # those that are not found, together, against all tests

A clone of the code has the faults, which are in planted_faults.toml. Names after the options choose some of them; with
--record, they are the beginnings of test files' paths. `--tree` names another clone, whose last commit is tested, such
as one from before a change. What is done is not repeated: its records are in `--results`, a folder.
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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.tools import fault_probes

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_suffix(".toml")
PACKAGES = ("compiler", "decoding", "app")
RUN_S_MAX = 1800.0  # of some test files: a fault may end in a loop
WHOLE_S_MAX = 7200.0  # of all tests
OURS = "tests/tools/test_planted_faults.py"  # compares the code with the faults
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
_NO_TESTS, _TIMED_OUT = 5, 124  # exit status of pytest, and ours where it does not end
_INTERRUPTED = (2, -signal.SIGINT, -signal.SIGKILL, -signal.SIGTERM)  # from outside, where no test has failed


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
        """The file's text, in which the fault's function calls `reach` first."""
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
    """A run of pytest. `failed` are tests; `cpu_s` is that of all processes that it waited for."""

    status: int
    failed: list[str]
    cpu_s: float
    wall_s: float


@dataclass(slots=True)
class Result:
    """What is known of a fault.

    found_by        a test that fails with it; None as long as there is none
    files           test files that do not find it
    failing_anyway  tests that fail without it, too
    """

    found_by: str | None = None
    files: list[str] = field(default_factory=list)
    failing_anyway: list[str] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def add(self, run: Run) -> None:
        """Count a run's time."""
        self.cpu_s, self.wall_s = round(self.cpu_s + run.cpu_s, 1), round(self.wall_s + run.wall_s, 1)


class Copy:
    """A clone of a tree. All processes of its own environment import its packages."""

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
        python = [self._bin / "python", "-c", code]
        imported = subprocess.check_output(python, cwd="/", env=self._environment, text=True)
        assert all(file.startswith(f"{self.path}/") for file in imported.split()), imported

    @property
    def test_files(self) -> list[str]:
        """All test files of the clone."""
        return sorted(str(path.relative_to(self.path)) for path in self.path.glob("tests/**/test_*.py"))

    def _write(self, file: str, text: str) -> None:
        """Replaces a file and drops its bytecode.

        Python tells by the second and the size whether bytecode is fresh.
        """
        path = self.path / file
        path.write_text(text, encoding="utf-8")
        for bytecode in path.parent.glob(f"__pycache__/{path.stem}.*"):
            bytecode.unlink()

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """A file has another text within the body."""
        before = (self.path / file).read_text(encoding="utf-8")
        self._write(file, text)
        try:
            yield
        finally:
            self._write(file, before)

    def planted(self, fault: Fault) -> AbstractContextManager[None]:
        """A file has a fault within the body."""
        return self.changed(fault.file, fault.plant((self.path / fault.file).read_text(encoding="utf-8")))

    def pytest(self, *arguments: str, timeout_s: float = RUN_S_MAX) -> Run:
        """Run tests in the clone. Exits where a signal from outside ends them."""
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [str(self._bin / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        with subprocess.Popen(
            command, cwd=self.path, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=timeout_s)
                status = process.returncode
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                (output, _), status = process.communicate(), _TIMED_OUT
        failed = _FAILED.findall(output)
        if status in _INTERRUPTED and not failed:
            sys.exit(f"pytest was interrupted ({status}); what was done before is recorded")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Run(status, failed, round(cpu_s, 1), round(time.monotonic() - started, 1))


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
    """The test files that reach a fault. Those of its module come first, then its sub-package's, then the cheapest."""
    module, folder = Path(fault.file).stem, "/".join(["tests", *fault.file.split("/")[:-1][:2]])
    reaching = [each for each in test_files if each.startswith(fault.tests)] if fault.tests else [
        each for each in test_files if fault.name in reach.get(each, {}).get("reaches", ())
    ]  # fmt: skip

    def rank(file: str) -> tuple[bool, bool, float]:
        return module not in file, not file.startswith(folder), reach.get(file, {}).get("cpu_s", 0.0)

    return sorted(reaching, key=rank)


def find(copy: Copy, fault: Fault, test_files: Sequence[str], result: Result) -> None:
    """Run test files up to the first test that finds the fault.

    That test fails with the fault, and not without it.
    """
    count = 4
    waiting = [each for each in test_files if each not in result.files]
    while waiting and result.found_by is None:
        with copy.planted(fault):
            run = copy.pytest("-x", *(f"--deselect={each}" for each in result.failing_anyway), *waiting[:count])
        result.add(run)
        if run.status in (0, _NO_TESTS):
            result.files += waiting[:count]
            waiting, count = waiting[count:], 2 * count
        else:
            failed = run.failed[:1]  # none where pytest crashed or did not end
            result.add(again := copy.pytest(*(failed or waiting[:count])))
            if again.status == 0:
                result.found_by = failed[0] if failed else f"pytest ended with {run.status}"
            elif failed:  # it fails without the fault, too, and so finds nothing
                result.failing_anyway += failed
            else:
                sys.exit(f"without the fault pytest ends with {again.status}, too: {' '.join(waiting[:count])}")


def find_in_all_tests(copy: Copy, faults: Sequence[Fault], results: dict[str, Result]) -> None:
    """Plant faults together and run all tests. Each test that fails runs with each fault alone, and without any.

    A fault is most likely not found here, where the test files that reach it did not find it. So one run is enough.
    """
    with ExitStack() as planted:
        for fault in faults:
            planted.enter_context(copy.planted(fault))
        run = copy.pytest("--numprocesses", "4", "--dist", "loadfile", f"--ignore={OURS}", timeout_s=WHOLE_S_MAX)
    print(f"all tests: status {run.status}, {run.cpu_s} s, {len(run.failed)} failed", flush=True)
    for test in run.failed:
        waiting = [fault for fault in faults if results[fault.name].found_by is None]
        if not waiting or copy.pytest(test).status != 0:
            continue
        for fault in waiting:
            with copy.planted(fault):
                if copy.pytest(test).status != 0:
                    results[fault.name].found_by = test


def summary(faults: Sequence[Fault], results: dict[str, Result]) -> Iterator[str]:
    """Lines of a Markdown table: by package, how many faults are found."""
    yield "| package | planted | run | found | processor time | not found |\n|---|---|---|---|---|---|"
    for package in PACKAGES:
        names = [fault.name for fault in faults if fault.file.startswith(f"{package}/")]
        run = {name: results[name] for name in names if name in results}
        missed = [name for name, result in run.items() if result.found_by is None]
        minutes = sum(result.cpu_s for result in run.values()) / 60
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that it leaves neither processes nor files behind
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Copy(options.tree.resolve(), Path(folder).resolve())
        if options.record:
            record(copy, faults, names or ("",), reach_path)
            return
        reach, results = _read(reach_path), {name: Result(**each) for name, each in _read(found_path).items()}
        chosen = [fault for fault in faults if not names or fault.name in names]
        if options.whole:
            missed = [fault for fault in chosen if fault.name in results and results[fault.name].found_by is None]
            find_in_all_tests(copy, missed, results)
            _write(found_path, {name: asdict(each) for name, each in results.items()})
        for fault in () if options.whole else chosen:
            files = files_that_reach(fault, reach, copy.test_files)
            result = results.setdefault(fault.name, Result())
            if result.found_by is None and not set(files) <= set(result.files):
                find(copy, fault, files, result)
                _write(found_path, {name: asdict(each) for name, each in results.items()})
                print(f"{fault.name}: {result.found_by or 'not found'}, {result.cpu_s} s", flush=True)
        print(*summary(faults, results), sep="\n")


if __name__ == "__main__":
    main()
