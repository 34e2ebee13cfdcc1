"""The commands `abs policy`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.cli.test_commands import exit_status
from tests.servers.service_process import ServiceProcess

RULES = {"rules": ["precedence(confirm, delete)"], "max_calls": 3}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("confirm", "delete")]
DECL = "activity confirm\nactivity delete\nPrecedence[confirm, delete] | |\n"


def conversation(*names: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "delete it"}]
    for name in names:
        function = {"name": name, "arguments": "{}"}
        messages.append({"role": "assistant", "tool_calls": [{"id": name, "type": "function", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": name, "content": "ok"})
    return messages


@pytest.fixture
def files(tmp_path: Path) -> Path:
    contents = {
        "rules.json": RULES, "tools.json": TOOLS, "good.json": conversation("confirm"),
        "bad.json": conversation("delete"), "list.json": [], "other.json": {"rule": []},
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "rules.decl").write_text(DECL, encoding="utf-8")
    return tmp_path


def status(files: Path, running_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit status of a command, run where the files are."""
    monkeypatch.chdir(files)
    return exit_status(monkeypatch, "policy", *arguments, "--url", running_service.url)


@pytest.mark.parametrize("policy", ["rules.json", "rules.decl"])
def test_a_conversation_is_checked(
    files: Path, policy: str, running_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    tools = ("--tools", "tools.json")
    assert status(files, running_service, monkeypatch, "check", policy, "good.json", *tools) == 0
    out = capsys.readouterr().out
    assert "satisfied: yes" in out and "may come next: reply, call(confirm), call(delete)" in out
    assert status(files, running_service, monkeypatch, "check", policy, "bad.json", *tools) == 3
    out = capsys.readouterr().out
    assert "message 1, call(delete): breaks" in out and "satisfied: no" in out and "cannot be met any more" in out


def test_states_are_listed(
    files: Path, running_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(files, running_service, monkeypatch, "states", "rules.json", "tools.json") == 0
    out = capsys.readouterr().out
    assert "(the start)" in out and "call(delete)" in out and "no number is enough" in out
    assert status(files, running_service, monkeypatch, "states", "rules.json", "tools.json", "--json") == 0
    assert {tuple(state["tools"]) for state in json.loads(capsys.readouterr().out)["states"]} > {("confirm",)}


@pytest.mark.parametrize(
    ("policy", "problem"), [("list.json", "must be a JSON object"), ("other.json", "must be a JSON object")]
)
def test_files_of_other_contents_are_refused(
    files: Path, policy: str, problem: str, running_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert status(files, running_service, monkeypatch, "check", policy, "good.json") == 2
    assert problem in " ".join(capsys.readouterr().err.split())
    assert status(files, running_service, monkeypatch, "check", "rules.json", "other.json") == 2
    assert status(files, running_service, monkeypatch, "check", "rules.json", "rules.decl") == 2
