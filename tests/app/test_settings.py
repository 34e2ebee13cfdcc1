from __future__ import annotations

import dataclasses

import pytest

from app.errors import SettingsInvalid
from app.settings import BUILT_IN_MODEL, MEASURED, RENAMED, Settings, child_environment, read_settings
from compiler.limits import Limits


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = read_settings({})
    assert settings == dataclasses.replace(Settings(), secret=settings.secret)
    assert (settings.model, settings.store, settings.broker) == (BUILT_IN_MODEL, "memory://", "memory://")
    assert settings.embedded_workers == ("compile", "generate")
    assert settings.generation_memory_bytes == MEASURED
    assert settings.model_id == "captions"


def test_every_kind_of_setting_is_read() -> None:
    settings = read_settings(
        {
            "ABS_MODEL": "some/model", "ABS_PORT": "9000", "ABS_TIMEOUT_S_DEFAULT": "1.5",
            "ABS_EMBEDDED_WORKERS": "compile, compile",
            "ABS_SECRET": "s" * 16, "ABS_DFA_STATES_MAX": "77", "ABS_COMPILE_S_MAX": "0.5",
            "ABS_NICE": "5",
            "ABS_COMPILE_MEMORY_BYTES_MAX": "1000000", "ABS_LTLF_ENGINE": "mona", "ABS_REGEX_ENGINE": "fado",
        }
    )
    assert (settings.model, settings.port, settings.timeout_s_default) == ("some/model", 9000, 1.5)
    assert settings.embedded_workers == ("compile", "compile")
    assert (settings.secret, settings.limits.dfa_states_max, settings.limits.compile_s_max) == (b"s" * 16, 77, 0.5)
    assert (settings.nice, settings.limits.compile_memory_bytes_max) == (5, 1_000_000)
    assert (settings.ltlf_engine, settings.regex_engine) == ("mona", "fado")
    assert settings.model_id == "some/model"


@pytest.mark.parametrize(("former", "name"), RENAMED.items())
def test_a_former_name_stops_the_start_with_the_new_one(former: str, name: str) -> None:
    assert name in {field.name for kind in (Settings, Limits) for field in dataclasses.fields(kind)}
    with pytest.raises(SettingsInvalid, match=f"ABS_{former.upper()} was renamed: set ABS_{name.upper()}"):
        read_settings({f"ABS_{former.upper()}": "1"})


def test_no_embedded_workers_is_a_choice() -> None:
    assert read_settings({"ABS_EMBEDDED_WORKERS": ""}).embedded_workers == ()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ABS_PORT", "http"), ("ABS_PORT", "70000"), ("ABS_NICE", "20"), ("ABS_BEAMS_MAX", "0"),
        ("ABS_BEAMS_MAX", "many"), ("ABS_MODEL", ""),
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
        read_settings({variable: value})


def test_the_secret_is_not_shown_and_not_shared() -> None:
    one, other = Settings(), Settings()
    assert one.secret != other.secret
    assert repr(one.secret) not in repr(one)


def test_compile_processes_see_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABS_SECRET", "s" * 16)
    monkeypatch.setenv("PATH", "/where/mona/lies")
    seen = child_environment()
    assert seen["PATH"] == "/where/mona/lies"
    assert not any(name.startswith("ABS_") for name in seen)
    assert seen["OPENBLAS_NUM_THREADS"] == "1"
