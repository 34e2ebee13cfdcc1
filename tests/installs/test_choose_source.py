"""The source of PyTorch that tools/install.py chooses, with a fake uv."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installs import small_wheels
from tools.install import Environment, choose_source, locked_torch

UNREACHABLE = "PyTorch's own builds cannot be reached"
INDEX = "https://wheels.example/cpu"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only the builds of PyTorch for Linux bring CUDA")


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def environment(
    empty_environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Environment]:
    """An environment without uv, whose pip finds PyTorch with CUDA alone."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    cuda = small_wheels.make_wheel(tmp_path / "wheels", "torch", "2.13.0")
    monkeypatch.setenv("PIP_INDEX_URL", small_wheels.make_index(tmp_path / "simple", [cuda]))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    yield empty_environment
    vars(empty_environment).pop("uv", None)  # what was found is kept
    for name in ("bin/uv", "arguments"):
        (empty_environment.folder / name).unlink(missing_ok=True)


def bring_uv(environment: Environment, status: int) -> Path:
    """Write a uv that ends with a status; return its record."""
    uv, record = environment.folder / "bin" / "uv", environment.folder / "arguments"
    uv.write_text(f'#!/bin/sh\necho "$@" >> {record}\nexit {status}\n', encoding="utf-8")
    uv.chmod(0o755)
    record.touch()
    return record


@pytest.mark.parametrize(
    ("where", "status", "backend", "asked"),
    [("", 0, "auto", True), ("", 1, None, True), ("auto", 1, "auto", False), ("cpu", 0, "cpu", False)],
    ids=["auto is found", "auto is not found", "auto is named", "cpu is named"],
)
def test_uv_gives_the_build_of_its_backend(
    environment: Environment, where: str, status: int, backend: str | None, asked: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    record = bring_uv(environment, status)
    source = choose_source(environment, where)
    uv = ("pip", "install", "--python", environment.python, "--torch-backend")
    expected = environment.install if backend is None else (str(environment.folder / "bin" / "uv"), *uv, backend)
    assert source.command == expected
    assert "3 GB with CUDA" in source.description
    dry_run = " ".join((*uv, "auto", "--quiet", "--dry-run", "--no-deps", locked_torch()))
    assert record.read_text(encoding="utf-8").splitlines() == ([dry_run] if asked else [])
    assert (UNREACHABLE in capsys.readouterr().out) == (backend is None)


def test_an_index_that_the_variable_names_is_used(environment: Environment) -> None:
    source = choose_source(environment, INDEX)
    assert source.command == (*environment.install, "--index-url", INDEX)
    assert source.description == "from the index that TORCH names, about 200 MB or about 3 GB with CUDA"


def test_without_uv_the_package_index_is_used(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    assert choose_source(environment, "").command == environment.install
    download, reason = capsys.readouterr().out.splitlines()
    assert download.startswith("downloading uv, ") and download.endswith(" MB") and reason.startswith(UNREACHABLE)


def test_without_uv_a_named_backend_is_refused(environment: Environment) -> None:
    with pytest.raises(SystemExit, match=r"TORCH=cpu is no folder and no index, and uv, .* cannot be installed"):
        choose_source(environment, "cpu")
