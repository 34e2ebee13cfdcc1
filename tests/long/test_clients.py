"""The clients of `make clients`, and what the documentation says of them."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from docs.tools.pages import DOCS
from tests.long.clients import __main__ as clients
from tests.long.clients.__main__ import CheckResult
from tests.long.clients.environments import HERE, REQUIREMENTS, ClientUnavailable, names, version


def test_the_documentation_has_the_version_of_each_client() -> None:
    page = (DOCS / "openai.md").read_text(encoding="utf-8").partition("## Clients")[2]
    rows = dict(re.findall(r"^\| ([a-z-]+) \| ([0-9.]+) \|", page, re.MULTILINE))
    assert rows == {name: version(name) for name in names()}


def test_every_client_has_a_module_and_pinned_requirements() -> None:
    for name in names():
        module = f"{name.replace('-', '_')}_client"
        assert len(list(HERE.glob(f"{module}.*"))) == 1, name
    for path in REQUIREMENTS.glob("*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), f"{path.name}: {line}"


def run_of(results: dict[str, list[CheckResult] | None], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of a run whose clients have these results. None is one that cannot be installed."""

    def check(name: str, _: str) -> list[CheckResult]:
        found = results[name]
        if found is None:
            raise ClientUnavailable("no network")
        return found

    service = SimpleNamespace(url="http://127.0.0.1:1", wait_until_ready=lambda: None)
    monkeypatch.setattr(clients, "serving", lambda *_, **__: nullcontext(service))
    monkeypatch.setattr(clients, "models", lambda folder: [])
    monkeypatch.setattr(clients, "check_client", check)
    monkeypatch.setattr(clients, "version", lambda name: "1")
    return clients.run(list(results))


def test_runs_fail_where_a_check_fails_or_none_ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passes, fails = CheckResult("a", ""), CheckResult("b", "wrong")
    assert run_of({"one": [passes], "other": None}, monkeypatch) == 0
    assert capsys.readouterr().out.endswith("1 checks passed, 0 failed; left out: other\n")
    assert run_of({"one": [passes, fails]}, monkeypatch) == 1
    assert run_of({"one": None, "other": None}, monkeypatch) == 3
    assert capsys.readouterr().out.endswith("0 checks passed, 0 failed; left out: one, other\n")
