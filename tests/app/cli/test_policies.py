"""The commands `abs policy`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.app.cli.conftest import Command

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
def policy(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command of `abs policy` in a folder with files."""
    contents = {
        "rules.json": RULES, "tools.json": TOOLS, "good.json": conversation("confirm"),
        "bad.json": conversation("delete"), "list.json": [], "other.json": {"rule": []},
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "rules.decl").write_text(DECL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return partial(command, "policy")


@pytest.mark.parametrize("rules", ["rules.json", "rules.decl"])
def test_a_conversation_is_checked(policy: Command, rules: str) -> None:
    status, output, _ = policy("check", rules, "good.json", "--tools", "tools.json")
    assert status == 0
    assert "satisfied: yes" in output and "may come next: reply, call(confirm), call(delete)" in output
    status, output, _ = policy("check", rules, "bad.json", "--tools", "tools.json")
    assert status == 3 and "satisfied: no" in output
    assert "message 1, call(delete): breaks" in output and "cannot be met any more" in output


def test_states_are_listed(policy: Command) -> None:
    status, output, _ = policy("states", "rules.json", "tools.json")
    assert status == 0
    assert "(the start)" in output and "call(delete)" in output and "no number is enough" in output
    status, output, _ = policy("states", "rules.json", "tools.json", "--json")
    assert status == 0 and {tuple(state["tools"]) for state in json.loads(output)["states"]} > {("confirm",)}


@pytest.mark.parametrize("rules", ["list.json", "other.json"])
def test_files_of_other_contents_are_refused(policy: Command, rules: str) -> None:
    status, _, errors = policy("check", rules, "good.json")
    assert status == 2 and "must be a JSON object" in " ".join(errors.split())
    assert policy("check", "rules.json", "other.json")[0] == 2
    assert policy("check", "rules.json", "rules.decl")[0] == 2
