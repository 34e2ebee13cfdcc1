"""Reads the domains of tau-bench: their tools and their data."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

from benchmarks.policies.domains import RULES, Domain, Session

_ROOT = Path("tau_bench", "envs")
_SHARED = "flights"  # no call changes them, and they are most of the data


def read_domain(checkout: Path, name: str) -> Domain:
    """A domain of a checkout. Imports the modules of its tools."""
    folder = checkout / _ROOT / name
    for package in ("tau_bench", "tau_bench.envs"):  # their own imports need packages for users' models
        sys.modules.setdefault(package, types.ModuleType(package))
    load_module("tau_bench.envs.tool", checkout / _ROOT / "tool.py")
    classes = {}
    for path in sorted((folder / "tools").glob("[a-z]*.py")):
        module = load_module(f"tau_bench.envs.{name}_{path.stem}", path)
        found = next(each for each in vars(module).values() if hasattr(each, "get_info") and each.__name__ != "Tool")
        classes[path.stem] = found
    infos = {tool: found.get_info()["function"] for tool, found in classes.items()}
    tools = {infos[tool]["name"]: infos[tool]["parameters"] for tool in classes}
    data = {path.stem: json.loads(path.read_text()) for path in sorted((folder / "data").glob("*.json"))}
    by_name = {infos[tool]["name"]: found for tool, found in classes.items()}
    return domain_of(f"tau-bench {name}", RULES[name], tools, data=data, classes=by_name)


def domain_of(
    name: str, rules: tuple[str, ...], tools: dict[str, dict[str, Any]], *, data: dict[str, Any],
    classes: dict[str, Any],
) -> Domain:
    """A domain of data that the tools change in place.

    classes  by tool, each with a function `invoke` of the data and the arguments
    """
    text = json.dumps({part: value for part, value in data.items() if part != _SHARED})
    shared = {part: value for part, value in data.items() if part == _SHARED}

    def session() -> Session:
        own = json.loads(text) | shared  # several times as fast as a deep copy
        return Session(own, lambda tool, arguments: classes[tool].invoke(own, **arguments))

    return Domain(name, rules, tools, session)


def load_module(name: str, path: Path) -> types.ModuleType:
    """Import a file as a module of this name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
