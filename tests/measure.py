"""Counts the functions that one request enters, and measures code lengths.

    python -m tests.measure

One `POST /generate` is profiled in embedded mode, cold and with its constraint stored, over all threads of the process.
Heartbeats of workers are left out. A cold compilation runs in a separate process and is profiled separately.
"""

from __future__ import annotations

import ast
import io
import sys
import threading
import tokenize
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from starlette.testclient import TestClient

from app.main import create_app
from app.models import open_model_files
from app.settings import BUILT_IN_MODEL, Settings
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from tests.app.conftest import wait_until_ready
from tests.test_imports import PACKAGES, ROOT, functions, modules

FUNCTION_LINES = 40
HEARTBEATS = {  # what runs once a second, whether there is a request or not
    "_send_status", "report_forever", "report_loop_alive", "heartbeat", "record_loop_alive", "record_heartbeat",
    "health_problem", "overdue_s", "stalled_s", "stall_reason",
}  # fmt: skip
SCHEMA = {
    "type": "object", "required": ["name", "age"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
}  # fmt: skip
BODY = {"prompt": "sentence:", "constraint": {"json_schema": SCHEMA}, "max_tokens": 48, "beams": 4}


class Profiler:
    """Records our functions that are entered in all threads started later."""

    def __init__(self) -> None:
        self._entered: set[tuple[str, str, int]] | None = None
        self._packages = tuple(f"{ROOT / package}/" for package in PACKAGES)
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if self._entered is None or event != "call" or not code.co_filename.startswith(self._packages):
            return
        if code.co_name not in HEARTBEATS:
            self._entered.add((code.co_filename, code.co_name, code.co_firstlineno))

    @contextmanager
    def record(self) -> Iterator[set[tuple[str, str, int]]]:
        """File, name and first line of each function that is entered meanwhile."""
        self._entered = entered = set[tuple[str, str, int]]()
        try:
            yield entered
        finally:
            self._entered = None


def requests() -> Iterator[str]:
    """A line for each profiled request."""
    profiler = Profiler()
    with TestClient(create_app(Settings()), raise_server_exceptions=False) as client:
        wait_until_ready(client)
        client.post("/generate", json=BODY | {"constraint": {"choice": ["yes"]}})  # everything built once is built
        for name in ("cold", "cached"):
            with profiler.record() as entered:
                assert client.post("/generate", json=BODY).status_code == 200
            cached = {file for file, _, _ in entered}
            yield f"POST /generate, {name}: {len(cached)} files, {len(entered)} functions"
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    with profiler.record() as entered:
        compile_spec(spec_from_json({"json_schema": SCHEMA}), vocabulary)
    new_files = {file for file, _, _ in entered} - cached
    yield f"a cold compilation of a schema of two fields: {len(new_files)} files more, {len(entered)} functions"


def long_functions() -> Iterator[str]:
    """A line for each function of more than FUNCTION_LINES lines."""
    for package in PACKAGES:
        for name, node, lines in functions(package):
            if lines > FUNCTION_LINES:
                yield f"{modules(package)[name].relative_to(ROOT)}: {node.name}, {lines} lines"


def counted(package: str) -> str:
    """Modules, lines and comments of a package."""
    texts = [path.read_text(encoding="utf-8") for path in modules(package).values()]
    lines = sum(text.count("\n") for text in texts)
    code = sum(len(code_lines(text)) for text in texts)
    tokens = (token for text in texts for token in tokenize.generate_tokens(io.StringIO(text).readline))
    comments = sum(token.type == tokenize.COMMENT for token in tokens)
    return f"{len(texts)} modules, {lines} lines, {code} of code, {100 * comments / max(1, code):.1f} comments per 100"


def code_lines(text: str) -> set[int]:
    """The numbers of code lines, without blank lines, comments or docstrings."""
    tree, lines = ast.parse(text), set[int]()
    docstrings = {
        id(node.body[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and id(node) not in docstrings:
            first = node.body[0].lineno - 1 if isinstance(node, _COMPOUND) else node.end_lineno
            lines.update(range(node.lineno, max(node.lineno, first or 0) + 1))
    blank = {number for number, line in enumerate(text.splitlines(), 1) if not line.strip() or line.strip()[0] == "#"}
    return lines - blank


_COMPOUND = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try)


def main() -> None:
    sections: dict[str, Callable[[], Iterator[str]]] = {
        "Entered": requests,
        f"Functions of more than {FUNCTION_LINES} lines": long_functions,
        "Packages": lambda: (f"{name}: {counted(name)}" for name in (*PACKAGES, "tests", "benchmarks")),
    }
    for title, lines in sections.items():
        print(title)
        for line in lines():
            print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
