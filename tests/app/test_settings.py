from __future__ import annotations

from pathlib import Path

import pytest

from app.environment import child_environment
from app.errors import SettingsInvalid
from app.settings import BUILT_IN_MODEL, MEASURED, Settings, read_settings
from tests.environment import settings_in


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = settings_in({})
    assert settings == Settings.of(secret=settings.auth.secret)
    assert (settings.storage.store, settings.storage.broker) == ("memory://", "memory://")
    assert settings.process.embedded_workers == ("compile", "generate")
    assert (settings.inference.model, settings.inference.generation_memory_bytes) == ((BUILT_IN_MODEL,), MEASURED)


def test_every_kind_of_setting_is_read() -> None:
    settings = settings_in(
        {
            "ABS_MODEL": "some/model", "ABS_PORT": "9000", "ABS_TIMEOUT_S_DEFAULT": "1.5",
            "ABS_EMBEDDED_WORKERS": "compile, compile",
            "ABS_SECRET": "s" * 16, "ABS_DFA_STATES_MAX": "77", "ABS_COMPILE_S_MAX": "0.5",
            "ABS_NICE": "5",
            "ABS_COMPILE_MEMORY_BYTES_MAX": "1000000", "ABS_LTLF_ENGINE": "mona", "ABS_REGEX_ENGINE": "fado",
        }
    )
    assert (settings.server.port, settings.requests.timeout_s_default) == (9000, 1.5)
    assert settings.process.embedded_workers == ("compile", "compile")
    assert (settings.auth.secret, settings.limits.dfa_states_max, settings.limits.compile_s_max) == (b"s" * 16, 77, 0.5)
    assert (settings.process.nice, settings.limits.compile_memory_bytes_max) == (5, 1_000_000)
    assert (settings.engines.ltlf_engine, settings.engines.regex_engine) == ("mona", "fado")
    assert settings.inference.model == ("some/model",)


def test_no_embedded_workers_is_a_choice() -> None:
    assert settings_in({"ABS_EMBEDDED_WORKERS": ""}).process.embedded_workers == ()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ABS_PORT", "http"), ("ABS_PORT", "70000"), ("ABS_NICE", "20"), ("ABS_BEAMS_MAX", "-1"),
        ("ABS_BEAMS_MAX", "many"), ("ABS_MODEL", ""), ("ABS_MODEL", ","),
        ("ABS_TIMEOUT_S_DEFAULT", "soon"), ("ABS_TIMEOUT_S_DEFAULT", "1000"), ("ABS_TIMEOUT_S_DEFAULT", "nan"),
        ("ABS_EMBEDDED_WORKERS", "compile,train"), ("ABS_SECRET", "short"), ("ABS_DFA_STATES_MAX", "-1"),
        ("ABS_TIMEOUT_S_MAX", "inf"), ("ABS_COMPILE_S_MAX", "inf"), ("ABS_RESULT_TTL_S", "1e999"),
        ("ABS_LOG_LEVEL", "loud"), ("ABS_BODY_BYTES_MAX", ""),
        ("ABS_BATCH_REQUESTS_MAX", "0"), ("ABS_GENERATION_MEMORY_BYTES", "-1"),
        ("ABS_LTLF_ENGINE", "fado"), ("ABS_REGEX_ENGINE", ""), ("ABS_COMPILE_MEMORY_BYTES_MAX", "1 GiB"),
    ],
)
def test_a_faulty_value_is_refused_and_its_variable_named(variable: str, value: str) -> None:
    with pytest.raises(SettingsInvalid, match=variable):
        settings_in({variable: value})


def test_one_message_names_every_fault_without_secrets(tmp_path: Path) -> None:
    faults = {
        "ABS_PORT": ("http", "valid integer"), "ABS_LOG_LEVEL": ("loud", "'debug', 'info', 'warning' or 'error'"),
        "ABS_SECRET": ("MARKER", "at least 16"), "ABS_BROKER_FILE": (str(tmp_path / "missing"), "cannot be read"),
        "ABS_TIMEOUT_S_DEFAULT": ("301", "at most ABS_TIMEOUT_S_MAX"), "ABS_DFA_STATES_MAX": ("0", "greater than 0"),
        "ABS_PUBLIC_PATHS": ("/ready,/jobs", "'/ready'"),
    }
    with pytest.raises(SettingsInvalid) as refusal:
        settings_in({variable: value for variable, (value, _) in faults.items()})
    lines = str(refusal.value).splitlines()
    assert len(lines) == len(faults) and "MARKER" not in str(refusal.value)
    for variable, (_, rule) in faults.items():
        assert any(variable in line and rule in line for line in lines), variable


def test_a_file_holds_a_secret_and_its_variable_is_unset(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s" * 16 + "\n")
    assert settings_in({"ABS_SECRET_FILE": str(file)}).auth.secret == b"s" * 16
    with pytest.raises(SettingsInvalid, match="ABS_SECRET and ABS_SECRET_FILE are both set"):
        settings_in({"ABS_SECRET_FILE": str(file), "ABS_SECRET": "s" * 16})


def test_an_option_precedes_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABS_PORT", "9000")
    assert (read_settings().server.port, read_settings(port=1).server.port) == (9000, 1)


def test_the_secret_is_not_shown_and_not_shared() -> None:
    one, other = Settings(), Settings()
    assert one.auth.secret != other.auth.secret
    assert repr(one.auth.secret) not in repr(one)


def test_compile_processes_see_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABS_SECRET", "s" * 16)
    monkeypatch.setenv("PATH", "/where/mona/lies")
    seen = child_environment()
    assert seen["PATH"] == "/where/mona/lies"
    assert not any(name.startswith("ABS_") for name in seen)
    assert seen["OPENBLAS_NUM_THREADS"] == "1"
