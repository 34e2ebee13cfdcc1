"""The images: linted, their parts where they belong, and the steps that install them run for real.

A dependency takes minutes to install; here the steps find them installed already, and say so, in the versions that are
pinned. `make image-check` runs the very steps in an empty environment.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.deploy import dockerfile, image

ROOT = dockerfile.ROOT
TARGETS = ("light", "cpu", "cuda")


def test_the_dockerfile_passes_the_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    said = subprocess.run([linter, "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout) == (0, ""), said.stdout + said.stderr


def test_the_linter_rejects_a_bad_dockerfile() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    said = subprocess.run([linter, "-"], input="FROM debian\nRUN cd /\n", capture_output=True, text=True, timeout=60)
    assert said.returncode != 0 and "DL3006" in said.stdout and "DL3003" in said.stdout


def test_the_default_image_is_for_a_cpu() -> None:
    assert list(dockerfile.stages())[-1] == "cpu"


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_without_root_and_stops_on_sigterm(target: str) -> None:
    assert dockerfile.steps(target, "USER")[-1].isdigit() and dockerfile.steps(target, "USER")[-1] != "0"
    assert dockerfile.steps(target, "STOPSIGNAL") == ["SIGTERM"]
    assert dockerfile.steps(target, "HEALTHCHECK")
    assert dockerfile.command(target) == ["abs", "serve"]


def test_only_those_images_have_pytorch_that_need_it() -> None:
    for target in TARGETS:
        asked = " ".join(dockerfile.steps(f"{target}-installed", "RUN"))
        assert ("locks/inference.txt" in asked) == (target != "light")


def test_a_code_change_reinstalls_no_dependency() -> None:
    for target in TARGETS:
        words = [(word, rest) for stage in dockerfile.lineage(f"{target}-installed") for word, rest in stage.steps]
        code = next(place for place, (word, rest) in enumerate(words) if word == "COPY" and "wheel" in rest)
        asked = [place for place, (word, rest) in enumerate(words) if word == "RUN" and "--requirement" in rest]
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
    from tests.environment import settings_in

    for target in TARGETS:
        given = dockerfile.environment(target)
        settings = settings_in(given)
        assert settings.server.host == settings.telemetry.metrics_host == "0.0.0.0"
        assert settings.telemetry.log_format == "json"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that the steps of the stage `light-installed` have filled."""
    folder = tmp_path_factory.mktemp("image")
    target = folder / "abs"
    venv.create(target, with_pip=False, symlinks=True)
    ours = Path(sysconfig.get_paths()["purelib"])
    site = target / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (site / "beside.pth").write_text(f"{ours}\n")  # the dependencies; our own editable install is not followed
    shutil.copytree(ours / "pip", site / "pip")
    (target / "bin" / "pip").write_text(f"#!/bin/sh\nexec {target}/bin/python -m pip \"$@\"\n")
    (target / "bin" / "pip").chmod(0o755)
    image.run_steps("light", folder)
    return target


def test_the_steps_install_a_service_that_starts(installed: Path, tmp_path: Path) -> None:
    own = {"PATH": f"{installed}/bin", "HOME": str(tmp_path)}
    where = subprocess.run(
        [installed / "bin" / "python", "-c", "import app; print(app.__file__)"],
        cwd=tmp_path, env=own, capture_output=True, text=True, timeout=60, check=True,
    ).stdout
    assert where.startswith(str(installed))
    worker = ["abs", "worker", "compile"]
    said = subprocess.run(worker, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=60)
    assert said.returncode == 4 and "ABS_BROKER is memory://" in said.stderr
    for role in ("app/models/captions/model.safetensors", "app/local/health.py", "decoding/search/driver.py"):
        assert list(installed.glob(f"lib/*/site-packages/{role}")), role


def test_the_full_check_runs_every_step() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^image-check:.*\n(\t.*\n)*\t.*-m tests\.deploy\.image", makefile, re.MULTILINE)
