"""Reads the domains of tau2: their tools, and their data.

Some copies of the repository lack the data of the airline, which are tau-bench's in another layout. Then tau-bench's
are taken.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from benchmarks.policies.domains import RULES, Domain, Session
from benchmarks.policies.tau import load_module

_CLASSES = {"retail": ("RetailTools", "RetailDB"), "airline": ("AirlineTools", "FlightDB")}
_CHANGED = ("users", "orders", "reservations")  # no call changes other parts of the data


def read_tau2_domain(checkout: Path, name: str, tau_bench: Path) -> Domain:
    """A domain of a checkout. Imports the modules of its tools.

    tau_bench  a checkout of tau-bench, for data that this checkout lacks
    """
    _stub_packages(checkout)
    source = checkout / "src" / "tau2"
    for part in ("environment.db", "environment.toolkit", f"domains.{name}.utils", f"domains.{name}.data_model"):
        load_module(f"tau2.{part}", source.joinpath(*part.split(".")).with_suffix(".py"))
    module = load_module(f"tau2.domains.{name}.tools", source / "domains" / name / "tools.py")
    toolkit, database = (getattr(module, each) for each in _CLASSES[name])
    file = checkout / "data" / "tau2" / "domains" / name / "db.json"
    data = json.loads(file.read_text()) if file.exists() else _data_of_tau_bench(tau_bench, name)
    whole = database.model_validate(data)
    names = list(toolkit(whole).tools)
    texts = {part: json.dumps(data[part]) for part in _CHANGED if part in data}
    adapters: dict[str, TypeAdapter[Any]] = {
        part: TypeAdapter(database.model_fields[part].annotation) for part in texts
    }

    def session() -> Session:
        own = {part: adapters[part].validate_json(text) for part, text in texts.items()}
        tools = toolkit(whole.model_copy(update=own))
        return Session(data, lambda tool, arguments: tools.use_tool(tool, **arguments))

    return Domain(f"tau2 {name}", RULES[name], {tool: _schema_of(getattr(toolkit, tool)) for tool in names}, session)


def _data_of_tau_bench(checkout: Path, name: str) -> dict[str, Any]:
    folder = checkout / "tau_bench" / "envs" / name / "data"
    data = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    for number, user in data["users"].items():
        user.setdefault("user_id", number)
    return data


def _schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, from its signature."""
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())[1:]  # without self
    fields: dict[str, Any] = {
        each.name: (each.annotation, ... if each.default is each.empty else each.default) for each in parameters
    }
    schema = create_model(function.__name__, **fields).model_json_schema()
    definitions = schema.pop("$defs", {})

    def inlined(part: Any) -> Any:
        if isinstance(part, list):
            return [inlined(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return inlined(definitions[part["$ref"].rpartition("/")[2]])
        return {name: inlined(value) for name, value in part.items()}

    found: dict[str, Any] = inlined(schema)
    return found


class _StrictBase(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Silent:
    """Stands for a logger."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **options: None


def _stub_packages(checkout: Path) -> None:
    """Modules in place of the packages' own, which import users' models."""

    def stub(name: str, **members: object) -> None:
        module = sys.modules.setdefault(name, types.ModuleType(name))
        vars(module).update(members)

    for package in ("tau2", "tau2.environment", "tau2.domains", "tau2.domains.retail", "tau2.domains.airline"):
        stub(package)
    unused = ("dump_file", "load_file", "get_pydantic_hash", "get_dict_hash", "update_pydantic_model_with_dict")
    stub("tau2.utils", **dict.fromkeys(unused))
    stub("tau2.utils.utils", DATA_DIR=checkout / "data")
    stub("tau2.utils.pydantic_utils", BaseModelNoExtra=_StrictBase)
    stub("tau2.environment.tool", Tool=object, as_tool=None)
    stub("loguru", logger=_Silent())
