"""The records say that the long targets have passed with today's files."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.long import record

EDIT = "from pathlib import Path; Path('page.md').write_text('other')"


def test_the_long_targets_have_passed_with_these_files() -> None:
    names = record.stale()
    if not names:
        return
    message = f"not run since their files changed: {', '.join(names)}. Run `make records` and commit tests/long/LAST.md"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def test_every_long_target_of_make_is_recorded() -> None:
    makefile = (record.ROOT / "Makefile").read_text(encoding="utf-8")
    for target in record.TARGETS:
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert recipe and f"$(RECORD) {target} --" in recipe[1], target


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of a repository with one file and three targets."""
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setattr(record, "PAGE", tmp_path / "LAST.md")
    monkeypatch.setattr(record, "TARGETS", {"docs": ("page.md",), "audit": ("page.md",), "test-long": ()})
    monkeypatch.chdir(tmp_path)
    for name in ("page.md", "LAST.md", ".gitignore"):
        (tmp_path / name).write_text("")
    return tmp_path / "LAST.md"


def run(target: str, program: str) -> int:
    return record.record(target, (sys.executable, "-c", program))


def test_only_a_run_that_passed_is_recorded_as_passed(page: Path) -> None:
    for status, result in ((3, "not run"), (1, "failed"), (3, "failed"), (0, "passed"), (3, "passed"), (7, "failed")):
        assert run("docs", f"raise SystemExit({status})") == status
        assert f"\n| docs | {result} | " in page.read_text(encoding="utf-8")
        assert ("docs" in record.stale()) == (result != "passed")


def test_only_an_optional_target_may_stay_not_run(page: Path) -> None:
    assert (run("docs", "raise SystemExit(3)"), run("audit", "raise SystemExit(3)")) == (3, 3)
    assert record.stale() == ["docs"]


def test_a_changed_file_makes_a_record_stale(page: Path) -> None:
    assert (run("docs", ""), run("audit", "")) == (0, 0)
    assert record.stale() == []
    exec(EDIT)
    assert record.stale() == ["docs", "audit"]


def test_a_run_during_which_files_change_is_not_recorded(page: Path) -> None:
    assert run("docs", EDIT) == 1
    assert page.read_text(encoding="utf-8") == ""


def test_ignored_files_are_not_covered(page: Path) -> None:
    folder = page.parent / "page.md"
    folder.unlink()
    (folder / "__pycache__").mkdir(parents=True)
    (page.parent / ".gitignore").write_text("__pycache__/\n*.pyc\n")
    before = record.digest("docs")
    for name in ("a.pyc", "__pycache__/a.txt"):
        (folder / name).write_text("a")
        assert record.digest("docs") == before
    (folder / "a.txt").write_text("a")
    assert record.digest("docs") != before


def test_settings_of_tools_are_not_covered(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "TARGETS", {"docs": ("pyproject.toml",)})
    file = page.parent / "pyproject.toml"
    digests = []
    for text in ("[tool.mypy]\nstrict = true", "[tool.ruff]\nline-length = 120", "[tool.hatch]\nbuild = {}"):
        file.write_text(f"[project]\nname = 'a'\n{text}\n")
        digests.append(record.digest("docs"))
    assert digests[0] == digests[1] != digests[2]
