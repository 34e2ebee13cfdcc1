"""Licences of everything that is installed here."""

from __future__ import annotations

from pathlib import Path

from tools.audit import installed, undeclared_gpl, write_licences


def test_no_package_of_the_service_is_under_the_gpl() -> None:
    assert not undeclared_gpl()


def test_the_table_gives_every_package_a_licence(tmp_path: Path) -> None:
    write_licences(tmp_path / "licences.md")
    rows = (tmp_path / "licences.md").read_text(encoding="utf-8").splitlines()[2:]
    assert len(rows) == len(installed()) and any(row.startswith("| numpy | ") and "BSD" in row for row in rows)
    assert len([row for row in rows if row.endswith("| unknown |")]) <= 1  # axe-playwright-python names none
