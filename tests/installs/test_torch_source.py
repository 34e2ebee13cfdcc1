"""PyTorch's step of tools/install.py, with a local index.

The index's PyTorch brings CUDA, as PyPI's does for Linux. Only an installation that finds no CPU build may fetch that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.installs import small_wheels

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
[build-system]
requires = []
build-backend = "small_wheels"
backend-path = ["."]
[project]
name = "small-project"
version = "1.0"
"""
STEP_S_MAX = 300.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only the builds of PyTorch for Linux bring CUDA")


@dataclass
class Machine:
    """A checkout, a home, an index and a CPU build."""

    checkout: Path
    home: Path
    cpu_builds: Path

    def configure(self, option: str) -> None:
        """Add an option to pip's configuration of this home."""
        with (self.home / ".config" / "pip" / "pip.conf").open("a", encoding="utf-8") as file:
            file.write(f"{option}\n")

    def install(self, *arguments: str) -> tuple[str, set[str]]:
        """What tools/install.py prints, and the packages that are installed then."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_", "XDG_"))}
        own |= {"HOME": str(self.home), "UV_OFFLINE": "1"}  # as on a machine that reaches no build of PyTorch's own
        command = [sys.executable, "tools/install.py", "serve", *arguments]
        done = subprocess.run(
            command, cwd=self.checkout, env=own, capture_output=True, text=True, timeout=STEP_S_MAX, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        site = next(self.checkout.glob(".venv/lib/python*/site-packages"))
        return done.stdout, {path.name.removesuffix(".dist-info") for path in site.glob("*.dist-info")}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    checkout, home, wheels = (tmp_path / name for name in ("checkout", "home", "wheels"))
    dependency = small_wheels.make_wheel(wheels, "small-dependency", "1.0")
    cuda_build = small_wheels.make_wheel(wheels, "torch", "2.13.0", ["small-dependency", "nvidia-cublas"])
    cuda = small_wheels.make_wheel(wheels, "nvidia-cublas", "13.0")
    small_wheels.make_wheel(tmp_path / "cpu", "torch", "2.13.0+cpu", ["small-dependency"])
    index = small_wheels.make_index(tmp_path / "simple", [dependency, cuda_build, cuda])
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(f"[global]\nindex-url = {index}\n", encoding="utf-8")
    for folder in ("tools", "locks"):
        (checkout / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "install.py", checkout / "tools")
    for name in ("torch", "uv"):
        shutil.copy(ROOT / "locks" / f"{name}.txt", checkout / "locks")
    shutil.copy(Path(small_wheels.__file__), checkout)
    (checkout / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    pin = f"# 1 packages, 0 MB.\nsmall-dependency==1.0 --hash=sha256:{small_wheels.sha256(dependency)}\n"
    for name, text in {"light": pin, "inference": "", "build": ""}.items():
        (checkout / "locks" / f"{name}.txt").write_text(text, encoding="utf-8")
    return Machine(checkout, home, tmp_path / "cpu")


@pytest.mark.long
@pytest.mark.parametrize("option", ["find-links", "extra-index-url"])
def test_pip_configuration_gives_the_cpu_build(machine: Machine, option: str, tmp_path: Path) -> None:
    index = small_wheels.make_index(tmp_path / "extra", list(machine.cpu_builds.glob("*.whl")))
    machine.configure(f"{option} = {index if option == 'extra-index-url' else machine.cpu_builds}")
    printed, packages = machine.install()
    assert "torch==2.13.0 (2.13.0+cpu that pip is configured to find, about 200 MB) and 1 packages" in printed
    assert {"torch-2.13.0+cpu", "small_dependency-1.0", "small_project-1.0"} <= packages
    assert not any(name.startswith("nvidia") for name in packages)


@pytest.mark.long
def test_the_variable_comes_before_pip_configuration(machine: Machine, tmp_path: Path) -> None:
    small_wheels.make_wheel(tmp_path / "gpu", "torch", "2.13.0+cu130", ["small-dependency"])
    machine.configure(f"find-links = {machine.cpu_builds}")
    printed, packages = machine.install("--torch", str(tmp_path / "gpu"))
    assert f"from the folder {tmp_path / 'gpu'}" in printed
    assert "torch-2.13.0+cu130" in packages


@pytest.mark.long
def test_without_a_cpu_build_the_index_is_used_and_named(machine: Machine) -> None:
    printed, packages = machine.install()
    assert printed.startswith("downloading uv, which installs the others: 1 packages of locks/, ")
    assert "\nPyTorch's own builds cannot be reached, so that the package index's build is taken" in printed
    assert "from the package index, about 3 GB with CUDA" in printed
    assert {"torch-2.13.0", "nvidia_cublas-13.0"} <= packages


def test_a_package_with_another_hash_is_refused(machine: Machine) -> None:
    light = machine.checkout / "locks" / "light.txt"
    light.write_text(light.read_text().replace("sha256:", "sha256:0")[:-2] + "\n", encoding="utf-8")
    machine.configure(f"find-links = {machine.cpu_builds}")
    with pytest.raises(AssertionError, match=r"not installed: .*light\.txt"):
        machine.install()
