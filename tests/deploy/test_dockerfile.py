"""The Dockerfile: linted, its parts where they belong, everything by hash. `make compose-test` builds it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy import dockerfile
from tests.environment import settings_in

ROOT = dockerfile.ROOT
TARGETS = ("light", "inference")
LINTER = Path(sys.executable).with_name("hadolint")


def test_the_dockerfile_passes_the_linter() -> None:
    said = subprocess.run([LINTER, "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout) == (0, ""), said.stdout + said.stderr


def test_the_linter_rejects_a_bad_dockerfile() -> None:
    said = subprocess.run([LINTER, "-"], input="FROM debian\nRUN cd /\n", capture_output=True, text=True, timeout=60)
    assert said.returncode != 0 and "DL3006" in said.stdout and "DL3003" in said.stdout


def test_the_default_image_is_for_a_cpu() -> None:
    assert list(dockerfile.stages())[-1] == "inference"
    assert dockerfile.steps("inference-installed", "ARG")[-1] == "TORCH_BACKEND=cpu"


def test_the_legacy_builder_reaches_light_without_pytorch() -> None:
    names = list(dockerfile.stages())
    assert names.index("light") < names.index("inference-installed")


def test_every_base_image_is_an_argument() -> None:
    bases = {stage.base for stage in dockerfile.stages().values()}
    assert bases - dockerfile.stages().keys() == {"${PYTHON_IMAGE}"}
    digests = {f"{name}_IMAGE": f"{name}@sha256:0" for name in ("PYTHON", "VALKEY", "NGINX")}
    services = dockerfile.compose(digests)["services"].values()
    assert {service["build"]["args"]["PYTHON_IMAGE"] for service in services if "build" in service} == {
        "PYTHON@sha256:0"
    }
    assert {service["image"] for service in services if "build" not in service} == {"VALKEY@sha256:0", "NGINX@sha256:0"}


def test_all_packages_but_pytorch_and_ours_are_installed_by_hash() -> None:
    for stage in dockerfile.stages().values():
        for line in (rest for word, rest in stage.steps if word == "RUN"):
            for command in dockerfile.INSTALL.findall(line):
                assert any(text in command for text in ("--require-hashes", "locks/torch.txt", "/wheel/*.whl")), command


@pytest.mark.parametrize("wheels", [True, False])
def test_a_build_with_wheels_has_no_network(wheels: bool, tmp_path: Path) -> None:
    deploy = tmp_path / "deploy"
    (deploy / "wheels").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "images.sh", deploy)
    if wheels:
        (deploy / "wheels" / "any-1-py3-none-any.whl").touch()
    engine = tmp_path / "docker"  # which prints its arguments
    engine.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    engine.chmod(0o755)
    variables = dict(os.environ) | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    output = subprocess.check_output((deploy / "images.sh",), env=variables, text=True, timeout=60)
    builds = [line for line in output.splitlines() if line.startswith("build ")]
    assert len(builds) == 3
    assert all(("--network none --build-arg PIP_NO_INDEX=1" in line) == wheels for line in builds)


@pytest.mark.parametrize("stage", [name for name, stage in dockerfile.stages().items() if "pip" in str(stage.steps)])
def test_an_offline_build_asks_no_package_index(stage: str) -> None:
    assert dockerfile.variables(stage, {"PIP_NO_INDEX": "1"})["PIP_NO_INDEX"] == "1"
    for line in dockerfile.steps(stage, "RUN"):
        assert "uv pip" not in line or 'if [ -n "$PIP_NO_INDEX" ] || ' in line


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_without_root_and_stops_on_sigterm(target: str) -> None:
    assert re.fullmatch("[1-9][0-9]*:[1-9][0-9]*", dockerfile.steps(target, "USER")[-1])
    assert dockerfile.steps(target, "STOPSIGNAL") == ["SIGTERM"]
    assert dockerfile.steps(target, "HEALTHCHECK")
    assert dockerfile.command(target) == ["abs", "serve"]


def test_only_those_images_have_pytorch_that_need_it() -> None:
    for target in TARGETS:
        asked = " ".join(dockerfile.steps(f"{target}-installed", "RUN"))
        assert ("locks/torch.txt" in asked) == (target != "light")


def test_a_code_change_reinstalls_no_dependency() -> None:
    for target in TARGETS:
        words = [(word, rest) for stage in dockerfile.lineage(f"{target}-installed") for word, rest in stage.steps]
        code = next(place for place, (word, rest) in enumerate(words) if word == "COPY" and "--from=wheel" in rest)
        asked = [place for place, (word, rest) in enumerate(words) if word == "RUN" and "locks/" in rest]
        assert asked and max(asked) < code
    for word, rest in dockerfile.stages()["build"].steps:
        assert word != "COPY" or not {"app", "decoding", "compiler"} & set(rest.split())


def test_copied_files_are_in_the_build_context() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source for stage in dockerfile.stages().values() for word, rest in stage.steps
        if word == "COPY" and not rest.startswith("--from") for source in rest.split()[:-1]
    }
    assert copied == let_in
    assert all((ROOT / source).exists() for source in copied)


def test_every_setting_of_an_image_is_one() -> None:
    for target in TARGETS:
        given = dockerfile.environment(target)
        settings = settings_in(given)
        assert settings.server.host == settings.telemetry.metrics_host == "0.0.0.0"
        assert settings.telemetry.log_format == "json"
