"""Runs every page's code blocks in order and compares the output. They run against a real service.

Blocks that install or start something run in test_started_blocks, in a clone of this repository.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import math
import os
import re
import shlex
import shutil
import socketserver
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.tools.pages import DOCS, Block, blocks, pages
from tests.docs import abs_in_shell
from tests.docs.checkout import typed_in_a_checkout
from tests.servers.forkserver import start_process
from tests.servers.processes import served_by_thread
from tests.servers.service_process import ServiceProcess

ROOT = DOCS.parent
WRITTEN_URL = "http://127.0.0.1:8000"
SHELL_S_MAX = 120
MORE = "…"  # pages shorten: at the end of a text or a list it stands for the rest, and fields are left out
LONG = {"agents.md"}  # imports frameworks for half a minute, so `make clients` runs it
PAGES = [
    pytest.param(page, id=name, marks=[pytest.mark.long] if name in LONG else [])
    for page in pages()
    if any(block.language in ("sh", "python") for block in blocks(page))
    and (name := page.relative_to(DOCS).as_posix())
]


def differs(expected: Any, actual: Any, where: str = "answer", exact: bool = True) -> str:
    """The first difference between a shown and an actual answer, or "".

    exactly  False compares only names of fields and types of values, since the texts of a model may change
    """
    match expected, actual:
        case dict(), dict():
            for name, value in expected.items():
                if name not in actual:
                    return f"{where} has no {name}"
                difference = differs(value, actual[name], f"{where}.{name}", exact)
                if difference:
                    return difference
            return ""
        case list(), list():
            return _list(expected, actual, where, exact)
        case bool(), bool():
            return "" if expected == actual or not exact else f"{where} is {actual}"
        case (int() | float(), int() | float()) if not isinstance(expected, bool) and not isinstance(actual, bool):
            close = math.isclose(expected, actual, rel_tol=0.01) or not exact
            return "" if close else f"{where} is {actual}, not {expected}"
        case str(), str():
            starts_alike = expected.endswith(MORE) and actual.startswith(expected[: -len(MORE)])
            same = not exact or expected == actual or starts_alike
            return "" if same else f"{where} is {actual!r}, not {expected!r}"
    return "" if expected is None and actual is None else f"{where} is {actual!r}, not {expected!r}"


def _list(expected: list[Any], actual: list[Any], where: str, exact: bool) -> str:
    cut = bool(expected) and expected[-1] == MORE
    required = expected[:-1] if cut else expected
    if exact and (len(actual) < len(required) if cut else len(actual) != len(required)):
        return f"{where} has {len(actual)} entries"
    if not exact and required and not actual:
        return f"{where} is empty"
    pairs = zip(required, actual, strict=False)
    return next(filter(None, (differs(a, b, f"{where}.{n}", exact) for n, (a, b) in enumerate(pairs))), "")


def same_output(expected: str, actual: str) -> bool:
    """Whether lines match the shown ones. "…" stands for any text, and a line of it alone for any lines."""
    parts = [re.escape(line) for line in expected.strip().split(MORE)]
    return re.fullmatch(".*?".join(parts), actual.strip(), re.DOTALL) is not None


class AbsHandler(socketserver.StreamRequestHandler):
    """Starts `abs` for a shell, and sends its exit status."""

    def handle(self) -> None:
        order = json.loads(self.rfile.readline())
        stdin, out, log = (Path(f"/proc/{order['pid']}/fd/{number}") for number in range(3))
        environment = os.environ | order["settings"]
        arguments = ["app.main", *order["arguments"]]
        process = start_process(arguments, environment, log, out, stdin, Path(order["folder"]))
        self.wfile.write(b"%d\n" % process.wait(SHELL_S_MAX))


@pytest.fixture
def url(running_service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The service's URL. Shells find it, the packages of this tree and `abs` in their environment."""
    address = str(tmp_path / "abs.socket")
    variables = {
        "ABS_BASE_URL": running_service.url, "PYTHONPATH": str(ROOT), "COLUMNS": "120", abs_in_shell.SOCKET: address,
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with served_by_thread(socketserver.ThreadingUnixStreamServer(address, AbsHandler)):
        yield running_service.url


def run_shell(code: str, folder: Path) -> str:
    if "curl" in code and shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    abs_command = shlex.join([sys.executable, "-IS", str(abs_in_shell.__file__)])
    code = code.replace(".venv/bin/python", sys.executable).replace(".venv/bin/abs", abs_command)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SHELL_S_MAX, check=False,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_python(block: Block, code: str, names: dict[str, Any]) -> str:
    words = io.StringIO()
    with contextlib.redirect_stdout(words):
        exec(compile(code, block.name, "exec", dont_inherit=True), names)
    return words.getvalue()


def compare(block: Block, output: str, executed: Block) -> None:
    """What the block before it has printed, with what this one shows."""
    if block.language != "json":
        assert same_output(block.code, output), f"{block.name} shows something else than\n{output}"
        return
    answer = json.loads(output)
    like = block.title == "an answer"
    difference = differs(json.loads(block.code), answer, exact=not like)
    assert not difference, f"{block.name}: {difference}"
    if like and "choices" in answer and "constraint" in executed.code:
        assert all(choice["satisfied"] for choice in answer["choices"])


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_print_the_shown_output(
    page: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # a library that asks for one would make its own, and never close it
    try:
        run_page(page, url, tmp_path, names)
    finally:  # as at the end of a program, which closes what it left open
        asyncio.set_event_loop(None)
        loop.close()
        names.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def test_the_blocks_of_the_readme_run(url: str, tmp_path: Path) -> None:
    readme_blocks = blocks(ROOT / "README.md")
    assert [block.title for block in readme_blocks] == ["", "an answer"]
    run_page(ROOT / "README.md", url, tmp_path, {})


def run_page(page: Path, url: str, folder: Path, names: dict[str, Any]) -> None:
    previous: Block | None = None
    previous_output = ""
    for block in blocks(page):
        code = block.code.replace(WRITTEN_URL, url)
        if block.title in ("answer", "an answer"):
            assert previous is not None, f"{block.name} shows an answer to nothing"
            compare(block, previous_output, previous)
        elif block.language in ("sh", "python") and not typed_in_a_checkout(block):
            previous_output = run_shell(code, folder) if block.language == "sh" else run_python(block, code, names)
            previous = block


def test_each_block_has_a_checked_language() -> None:
    for page in pages():
        for block in blocks(page):
            has_plain_text = block.language == "text" and block.title
            assert block.language in ("sh", "python", "json") or has_plain_text, f"{block.name}: ```{block.language}"
