"""Licences of what is installed here, and the reading of pip-audit's report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.audit import ServiceUnreached, ask, installed, undeclared_gpl, vulnerabilities, write_licences

AUDITED: dict[str, Any] = {"name": "anyio", "version": "4.0", "vulns": []}
SKIPPED = {"name": "arrow", "skip_reason": "not found: arrow (1.4.0)"}
VULNERABLE = {"name": "jinja2", "version": "3.1.6", "vulns": [{"id": "PYSEC-1", "fix_versions": ["9.9"]}]}


def test_no_package_of_the_service_is_under_the_gpl() -> None:
    assert not undeclared_gpl()


def test_the_table_gives_every_package_a_licence(tmp_path: Path) -> None:
    write_licences(tmp_path / "licences.md")
    rows = (tmp_path / "licences.md").read_text(encoding="utf-8").splitlines()[2:]
    assert len(rows) == len(installed()) and any(row.startswith("| numpy | ") and "BSD" in row for row in rows)
    assert len([row for row in rows if row.endswith("| unknown |")]) <= 1  # axe-playwright-python names none


@pytest.mark.parametrize(
    ("packages", "findings"),
    [
        ([AUDITED], []),
        ([AUDITED, VULNERABLE], ["jinja2 3.1.6: PYSEC-1, fixed in 9.9"]),
        ([AUDITED, SKIPPED], ["not audited: not found: arrow (1.4.0)"]),
    ],
)
def test_each_vulnerability_and_unknown_version_is_a_finding(
    packages: list[dict[str, Any]], findings: list[str]
) -> None:
    assert vulnerabilities(packages) == findings


def test_a_report_without_any_answer_is_no_audit() -> None:
    with pytest.raises(ServiceUnreached, match="arrow"):
        vulnerabilities([SKIPPED])


@pytest.mark.parametrize(
    ("message", "error"),
    [("your network may be blocking this service", ServiceUnreached), ("idna has duplicate requirements", SystemExit)],
)
def test_only_a_failed_connection_is_an_unreached_service(
    message: str, error: type[BaseException], tmp_path: Path
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\necho '{message}' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(error, match=message):
        ask(program, [tmp_path / "light.txt"], [])
