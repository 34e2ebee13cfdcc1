"""The lock files that the Dockerfile installs are closed.

No package requires another that is absent. Where it checks hashes, pip refuses a file that is not closed; elsewhere it
takes the absent package from the index, unchecked. The test follows the commands in their order and reads the packages'
metadata, so it needs no container engine.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import distributions
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy import dockerfile
from tests.deploy.package_index import pip_install
from tools.lock import CUDA, pins

STAGES = ("light-installed", "inference-installed")
PYTHONS = ("3.11.2", "3.11.14")  # Debian 12's and a newer one, which differ in what they need
LINUX = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
LATER = "torch"  # has its own command after the others, because its hashes differ by build
ALONE = "fado"  # declares notebooks, of which its automata need nothing

Package = tuple[str, str]  # name, version
Requirements = dict[Package, list[Requirement]]


def applies(requirement: Requirement, python: str, extra: str = "") -> bool:
    """Whether an image with this Python needs the requirement."""
    image = {"python_version": "3.11", "python_full_version": python, "extra": extra}
    return requirement.marker is None or requirement.marker.evaluate({**default_environment(), **LINUX, **image})


def pinned(file: str, python: str) -> dict[str, str]:
    """The version of each package that a lock file gives an image."""
    versions = dict[str, str]()
    for name, rest in pins((dockerfile.ROOT / file).read_text(encoding="utf-8")).items():
        version, _, marker = rest.partition(" ; ")
        if not marker or applies(Requirement(f"{name} ; {marker}"), python):
            versions[name] = version
    return versions


def package(fields: Any) -> Package:
    """The name and the version as lock files write them."""
    return canonicalize_name(fields["name"]), fields["version"].partition("+")[0]


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Requirements:
    """What each package requires.

    The metadata of what is installed here say so, of other packages those of the package index.
    """
    files = {command.file for stage in STAGES for command in dockerfile.installs(stage)}
    packages = {one for file in files for python in PYTHONS for one in pinned(file, python).items()}
    metadata = [distribution.metadata.json for distribution in distributions()]
    if unknown := sorted("==".join(one) for one in packages - set(map(package, metadata))):
        report = tmp_path_factory.mktemp("index") / "report.json"
        pip_install("the check of the lock files", "--dry-run", "--ignore-installed", "--report", str(report), *unknown)
        metadata += [one["metadata"] for one in json.loads(report.read_text(encoding="utf-8"))["install"]]
    found = {package(fields): fields.get("requires_dist", ()) for fields in metadata}
    return {one: [Requirement(line) for line in found[one]] for one in packages}


def absent(stage: str, python: str, requirements: Requirements) -> Iterator[str]:
    """The requirements that no command has installed in time."""
    environments = defaultdict[str, dict[str, str]](dict)
    for command in dockerfile.installs(stage):
        versions = environments[command.environment]
        added = pinned(command.file, python)
        versions |= added
        needs = [(name, "") for name in added if name != ALONE]  # each with an extra that a requirement names
        for name, extra in needs:
            for requirement in requirements[name, versions[name]]:
                required = canonicalize_name(requirement.name)
                excepted = required in CUDA or (command.no_deps and required == LATER)
                if excepted or not applies(requirement, python, extra):
                    continue
                if required in versions and requirement.specifier.contains(versions[required], prereleases=True):
                    needs += [(required, one) for one in requirement.extras if (required, one) not in needs]
                else:
                    yield f"{command.file}: {name} requires {requirement}"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("stage", STAGES)
def test_each_command_installs_all_that_its_packages_require(
    stage: str, python: str, requirements: Requirements
) -> None:
    assert not list(absent(stage, python, requirements))
