"""The wheel and the sdist, installed and used from elsewhere."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from app.settings import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]
STEP_S_MAX = 3_600.0  # that only a hang exceeds; the demo has a limit for each of its waits


def run(*command: str | Path, cwd: Path, path: str = "") -> str:
    own = {"PATH": path or str(Path(sys.executable).parent), "HOME": str(cwd), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, timeout=STEP_S_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run("hatchling", "build", "--target", "sdist", "--directory", folder, cwd=ROOT)
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel that is built from the sdist, as pip builds it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent, filter="data")
    source = sdist.parent / sdist.name.removesuffix(".tar.gz")
    run("hatchling", "build", "--target", "wheel", "--directory", sdist.parent, cwd=source)
    return next(sdist.parent.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel alone. It sees this environment's packages, but not the checkout."""
    target = tmp_path_factory.mktemp("wheel") / "environment"
    venv.create(target, with_pip=False, symlinks=True)
    site = target / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n", encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--python", target / "bin" / "python")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=target)
    return target


@pytest.mark.long
def test_the_demo_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "bin" / "python", "-c", "import app; print(app.__file__)", cwd=tmp_path)
    assert where.startswith(str(installed))
    assert run(installed / "bin" / "abs", "demo", cwd=tmp_path).count("✓") == 6


def test_the_installed_packages_satisfy_the_metadata_of_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    extras = ("", "compile", "inference", "otel", "redis", "up")
    assert set(extras[1:]) <= set(metadata.get_all("Provides-Extra", []))
    for requirement in requirements:
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            assert requirement.specifier.contains(version(requirement.name)), requirement
    # PyTorch's build is the user's choice, so that the metadata must not name one version.
    assert all("==" not in str(requirement.specifier) for requirement in requirements if requirement.name == "torch")


def test_the_wheel_holds_the_built_in_models_with_their_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in BUILT_IN:
            for file in ("README.md", "config.json", "model.safetensors", "tokenizer.json"):
                assert f"app/models/{name}/{file}" in archive.namelist()
            assert f"app/models/{name}.sha256" in archive.namelist()
            assert "**Licence**: " in archive.read(f"app/models/{name}/README.md").decode()
        licence = archive.read("app/models/stories/LICENSE").decode()
    assert licence.startswith("MIT License") and "Copyright (c) 2023 Andrej" in licence


def test_the_sdist_holds_the_sources_and_the_locks(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "locks/light.txt"} <= names
    assert {f"app/models/{name}/model.safetensors" for name in BUILT_IN} <= names
    assert not [name for name in names if name.startswith((".venv/", ".cache/", ".ci/"))]
