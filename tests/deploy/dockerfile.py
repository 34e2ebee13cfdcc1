"""Reads the Dockerfile: its stages, their instructions, and what they install."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
INSTALL = re.compile(r"\b(?:pip|uv pip) (?:--python \S+ )?install .*?(?=&&|;|$)")


@dataclass
class Stage:
    """One stage: its base stage or image, and its instructions in order."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)


def stages() -> dict[str, Stage]:
    """All stages by name, in order."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    found: dict[str, Stage] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = Stage(name, base)
        elif found:  # an argument before the first stage is for FROM alone
            list(found.values())[-1].steps.append((word, rest.strip()))
    return found


def lineage(name: str) -> list[Stage]:
    """A stage and its bases, the first base first."""
    known = stages()
    stage = known[name]
    return [*(lineage(stage.base) if stage.base in known else []), stage]


def steps(name: str, word: str) -> list[str]:
    """All instructions of one kind that make up a stage."""
    return [rest for stage in lineage(name) for kind, rest in stage.steps if kind == word]


def environment(name: str) -> dict[str, str]:
    """What ENV gives the processes of an image."""
    pairs = [pair.partition("=") for line in steps(name, "ENV") for pair in shlex.split(line)]
    return {key: value for key, _, value in pairs}


def variables(name: str, arguments: Mapping[str, str]) -> dict[str, str]:
    """The environment of a stage's commands, with these arguments of the build.

    ENV reaches the stages that build on a stage. With the legacy builder, ARG does not.
    """
    known, own = dict[str, str](), dict[str, str]()
    for stage in lineage(name):
        own = {}
        for word, rest in stage.steps:
            for key, _, value in (pair.partition("=") for pair in shlex.split(rest) if word in ("ARG", "ENV")):
                if word == "ARG":
                    own[key] = arguments.get(key, value)
                else:
                    known[key] = Template(value).safe_substitute(own | known)
    return own | known


@dataclass(frozen=True)
class Install:
    """A command that installs the packages of a lock file.

    environment  the folder of its `--python`; empty for that of the stage
    no_deps      whether it leaves out what the packages require
    """

    file: str
    environment: str
    no_deps: bool


def installs(name: str) -> Iterator[Install]:
    """The commands that install files of locks/ for a stage, in order.

    The commands of its bases come first. All branches of the shell count.
    """
    for line in steps(name, "RUN"):
        for command in INSTALL.findall(line):
            options = dict(re.findall(r"--(python|requirement) (\S+)", command))
            if "requirement" in options:
                yield Install(options["requirement"], options.get("python", ""), "--no-deps" in command)


def command(name: str) -> list[str]:
    """The default command of an image."""
    return list(json.loads(steps(name, "CMD")[-1]))


def compose(given: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """docker-compose.yml with these values of its variables, else their defaults."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(re.sub(r"\$\{([A-Z_]+):-([^}]*)\}", lambda found: given.get(found[1], found[2]), text)))
