"""The files of locks/: complete, hashed, without CUDA."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.install import FILES
from tools.lock import EXTRAS, GROUPS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = re.compile(r"^(\S+)==(\S+)(?: ; (.*))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(name: str) -> dict[str, str]:
    """The packages of one file. Every line of it belongs to a package with a hash, or is a comment."""
    text = (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    assert not re.sub(r"^#.*\n", "", PACKAGE.sub("", text), flags=re.MULTILINE), name
    return {match[1]: match[2] for match in PACKAGE.finditer(text)}


def test_every_package_of_a_lock_has_hashes_and_no_host() -> None:
    for path in (ROOT / "locks").glob("*.txt"):
        assert "://" not in path.read_text(encoding="utf-8"), path
    for name in (*EXTRAS, *GROUPS):
        assert locked(name)


def test_every_requirement_is_locked_at_an_allowed_version() -> None:
    table = project()["project"]
    torch = dict([(ROOT / "locks" / "torch.txt").read_text(encoding="utf-8").splitlines()[-1].split("==")])
    files = torch
    for name, extras in EXTRAS.items():
        files = files | locked(name)
        lines = [*table["dependencies"], *(line for extra in extras for line in table["optional-dependencies"][extra])]
        for requirement in map(Requirement, lines):
            assert requirement.specifier.contains(files[canonicalize_name(requirement.name)]), requirement
    for group in GROUPS:
        for requirement in map(Requirement, project()["dependency-groups"][group]):
            assert requirement.specifier.contains(locked(group)[canonicalize_name(requirement.name)]), requirement


def test_no_file_holds_pytorch_or_cuda() -> None:
    for name in (*EXTRAS, *GROUPS):
        assert not [package for package in locked(name) if package.startswith(("torch", "nvidia", "cuda", "triton"))]


def test_a_package_has_one_version_in_all_files() -> None:
    versions: dict[str, set[str]] = {}
    for name in EXTRAS:
        for package, version in locked(name).items():
            versions.setdefault(package, set()).add(version)
    assert not {package for package, found in versions.items() if len(found) > 1}


def test_the_installer_takes_only_files_that_exist() -> None:
    assert {name for files in FILES.values() for name in files} <= {*EXTRAS, *GROUPS}


def test_the_image_without_pytorch_has_nothing_of_the_tests() -> None:
    assert not {"pytest", "mypy", "transformers", "openai", "supervisor"} & locked("light").keys()
