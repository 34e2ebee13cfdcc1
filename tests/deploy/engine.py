"""A container engine: commands, image files and the Compose services."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.dockerfile import ROOT

COMMAND_S_MAX = 600.0


def require_engine() -> None:
    """Skips the test unless `make compose-test` runs it."""
    if os.environ.get("ABS_IMAGES") != "1":
        pytest.skip("make compose-test builds the images and runs them, where there is a container engine")


def docker(*words: str, input: str | None = None) -> str:
    """What a command of the engine prints. Raises CalledProcessError, with its errors as a note."""
    return _run(("docker", *words), input=input)


def _run(words: tuple[str, ...], environment: Mapping[str, str] | None = None, input: str | None = None) -> str:
    done = subprocess.run(
        words, cwd=ROOT, env=dict(os.environ) | dict(environment or {}), input=input, text=True, capture_output=True,
        timeout=COMMAND_S_MAX,
    )  # fmt: skip
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, words)
        error.add_note(done.stdout[-4_000:] + done.stderr[-4_000:])
        raise error
    return done.stdout


def described(name: str) -> dict[str, Any]:
    """What the engine says of a container or an image."""
    return dict(json.loads(docker("inspect", name))[0])


def layers(image: str) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Every file of every layer of an image, and its configuration."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image.tar"
        docker("save", "--output", str(path), image)
        with tarfile.open(path) as saved:
            for member in saved:
                file = saved.extractfile(member) if member.isfile() else None
                if file is None:
                    continue
                if not tarfile.is_tarfile(file):
                    file.seek(0)
                    yield member, file.read()
                    continue
                file.seek(0)
                with tarfile.open(fileobj=file) as layer:
                    for inner in layer:
                        content = layer.extractfile(inner) if inner.isfile() else None
                        yield inner, content.read() if content else b""


class Deployment:
    """The services of docker-compose.yml as containers of a project of their own."""

    def __init__(self, project: str, secrets: Path, address: str) -> None:
        self.project = project
        self._environment = {
            "COMPOSE_PROJECT_NAME": project, "ABS_SECRETS_DIR": str(secrets), "ABS_ADDRESS": address,
        }  # fmt: skip
        # Compose is a plug-in of the command docker, or in older versions a command.
        plugin = subprocess.run(("docker", "compose", "version"), capture_output=True).returncode == 0
        self._compose = ("docker", "compose") if plugin or not shutil.which("docker-compose") else ("docker-compose",)

    def compose(self, *words: str) -> str:
        """What a command of Compose prints."""
        return _run((*self._compose, *words), self._environment)

    def containers(self, *services: str) -> list[str]:
        """The ids of these services' containers; without names, of all."""
        return self.compose("ps", "--quiet", *services).split()

    def unhealthy(self) -> list[str]:
        """The names of the containers that are not healthy now."""
        states = {container: described(container)["State"] for container in self.containers()}
        return [name for name, state in states.items() if state.get("Health", {}).get("Status") != "healthy"]

    def logs(self) -> str:
        """The last lines of all services."""
        return self.compose("logs", "--tail", "40")
