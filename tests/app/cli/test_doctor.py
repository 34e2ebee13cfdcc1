"""`abs doctor`: its findings, their texts and its exit status."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.cli import doctor
from app.cli.doctor import Finding, examine, show
from app.cli.origins import ROOT, rivals, shadowing
from app.errors import SettingsInvalid
from app.main import create_app
from app.settings import Settings
from tests.servers.forkserver import run_process
from tests.servers.processes import free_port
from tests.servers.redis_server import running_server

RUN_S_MAX = 180.0


def findings_of(settings: Settings, **changes: Any) -> dict[str, Finding]:
    """The worst finding of each check under changed settings."""
    new_settings = settings.changed(**changes)
    findings = examine(lambda: new_settings, create_app, False)
    findings = sorted(findings, key=lambda finding: finding.state == "ok", reverse=True)
    return {finding.check: finding for finding in findings}


def finding_of(check: str, settings: Settings, **changes: Any) -> Finding:
    """The worst finding of one check. The other checks do not run, because they read models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "CHECKS", {check: doctor.CHECKS[check]})
        return findings_of(settings, **changes)[check]


@pytest.fixture
def settings() -> Settings:
    """The default settings with a free port."""
    return Settings.of(port=free_port())


def test_all_is_well_with_a_fresh_install(settings: Settings) -> None:
    findings = findings_of(settings)
    assert {finding.state for finding in findings.values()} == {"ok"}, findings
    assert {"python", "packages", "settings", "engines", "model", "weights", "device", "storage", "keys", "port",
            "memory", "processors", "temporary files"} <= set(findings)
    assert "captions" in findings["model"].detail and "SHA-256" in findings["weights"].detail
    assert "cpu" in findings["device"].detail or "cuda" in findings["device"].detail


def test_packages_of_another_origin_are_found(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = finding_of("origins", settings)
    assert finding.state == "ok" and str(ROOT) in finding.detail
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "__init__.py").touch()
    (tmp_path / "decoding.py").touch()
    (tmp_path / "app").mkdir()  # no package: ours is imported all the same
    monkeypatch.syspath_prepend(tmp_path)
    assert [text.split()[0] for text in shadowing()] == ["compiler", "decoding"]
    failed = finding_of("origins", settings)
    assert failed.state == "failed" and str(tmp_path) in failed.detail and failed.advice
    monkeypatch.setattr("sys.path", [*sys.path[1:], str(tmp_path)])
    assert not list(shadowing()) and len(list(rivals())) == 2
    assert finding_of("origins", settings).state == "warning"
    monkeypatch.setattr("sys.path", sys.path[:-1])
    monkeypatch.chdir(tmp_path)
    assert finding_of("origins", settings).state == "warning"


def test_two_distributions_of_one_package_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"app": ["abs-server", "another"], "compiler": ["abs-server"]}
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: owners)
    assert list(rivals()) == ["the package app is also installed by another"]


def test_invalid_settings_are_a_finding_and_end_dependent_checks() -> None:
    def read_settings() -> Settings:
        raise SettingsInvalid("ABS_PORT must be a whole number")

    findings = examine(read_settings, create_app, False)
    assert [finding.check for finding in findings] == ["python", "settings"]
    assert findings[1].state == "failed" and "ABS_PORT" in findings[1].detail


def test_settings_are_shown_and_secrets_are_hidden(settings: Settings) -> None:
    secret_settings = settings.changed(secret=b"MARKERSECRET1234", api_key="MARKERKEY", beams_max=7)
    console = Console(record=True, width=200, file=io.StringIO())
    findings = examine(lambda: secret_settings, create_app, False)
    show(console, findings)
    text = console.export_text()
    assert "beams_max = 7" in text and "MARKER" not in text and "MARKER" not in repr(findings)


def test_a_missing_model_fails_with_its_name(settings: Settings, tmp_path: Path) -> None:
    finding = findings_of(settings, model=str(tmp_path))["model"]
    assert finding.state == "failed" and "ABS_MODEL" in finding.detail


def test_weights_that_are_missing_fail(settings: Settings, tmp_path: Path, captions_dir: Path) -> None:
    for file in captions_dir.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert findings_of(settings, model=str(tmp_path))["weights"].state == "failed"
    assert findings_of(settings, model=str(tmp_path), embedded_workers=("compile",))["weights"].state == "warning"


def test_an_engine_that_is_not_installed_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    finding = finding_of("engines", settings, ltlf_engine="mona")
    assert finding.state == "failed" and "mona" in finding.detail.lower()


def test_a_port_that_is_taken_is_a_warning(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        finding = finding_of("port", settings, port=listener.getsockname()[1])
    assert finding.state == "warning" and "ABS_PORT" in finding.advice


def test_the_key_file_is_checked(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    assert finding_of("keys", settings, keys_file=str(file)).state == "failed"
    for content, state in (("", "warning"), ("not a key\n", "failed")):
        file.write_text(content)
        assert finding_of("keys", settings, keys_file=str(file)).state == state
    finding = finding_of("keys", settings, host="0.0.0.0")
    assert finding.state == "failed" and "ABS_" in finding.detail


def test_an_unreachable_collector_is_a_warning(settings: Settings) -> None:
    assert finding_of("traces", settings, otlp_endpoint="http://127.0.0.1:1").state == "warning"


def test_an_unreachable_server_fails_without_showing_its_password(settings: Settings) -> None:
    url = "redis://:MARKER@127.0.0.1:1/0"
    finding = finding_of("storage", settings, broker=url, store=url, secret=b"s" * 32)
    assert finding.state == "failed" and "MARKER" not in finding.detail


def test_a_server_that_may_evict_jobs_fails(settings: Settings) -> None:
    with running_server() as server:
        for policy, state in (("volatile-lru", "ok"), ("allkeys-lru", "failed")):
            finding = finding_of("storage", settings, broker=server.url, store=server.url, secret=b"s" * 32)
            assert finding.state == state and policy in finding.detail
            assert server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru") == "+OK"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_process(["app.main", "doctor", *arguments], os.environ | environment, RUN_S_MAX)


def test_the_deep_check_completes_a_round_trip(settings: Settings) -> None:
    result = run("--deep", "--json", ABS_PORT=str(settings.server.port))
    assert result.returncode == 0, result.stdout + result.stderr
    findings = {finding["check"]: finding for finding in json.loads(result.stdout)}
    assert findings["round trip"]["state"] == "ok" and "generating" in findings["round trip"]["detail"]


def test_the_command_fails_where_a_check_does() -> None:
    result = run(ABS_PORT="many")
    assert result.returncode == 4
    assert "ABS_PORT should be a valid integer" in result.stdout and "1 failed" in result.stdout
