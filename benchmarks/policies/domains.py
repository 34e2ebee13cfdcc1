"""The domains of tau-bench, with rules written from their policy texts.

The repository is sierra-research/tau-bench (MIT). Only the modules of the tools and the data are read. A result is
wrapped in an object whose `ok` says whether the tool has refused the call, so that rules can speak of it.

The rules say what the texts say of the order of events. What they say of the content of replies, and of amounts that
depend on several results, is left out.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path("tau_bench", "envs")
_FIND_USER = "find_user_id_by_email", "find_user_id_by_name_zip"
_FOUND = " | ".join(f"result({tool}, ok = true)" for tool in _FIND_USER)
_RETAIL_UPDATES = (
    "cancel_pending_order", "modify_pending_order_address", "modify_pending_order_items",
    "modify_pending_order_payment", "modify_user_address", "return_delivered_order_items",
    "exchange_delivered_order_items",
)  # fmt: skip
_AIRLINE_UPDATES = (
    "book_reservation", "cancel_reservation", "update_reservation_baggages", "update_reservation_flights",
    "update_reservation_passengers",
)  # fmt: skip
_TRANSFER = "G(transfer_to_human_agents -> WX G !call)"


def _any(tools: tuple[str, ...]) -> str:
    return f"({' | '.join(tools)})"


def _seen(call: tuple[str, ...], condition: str) -> str:
    return f"G({_any(call)} -> O result({condition}))"


RULES = {
    "retail": (
        # authenticate the user first, always
        f"F {_any(_FIND_USER)}",
        f"G({_any((*_RETAIL_UPDATES, 'get_user_details', 'get_order_details'))} -> O({_FOUND}))",
        # list the details and obtain a confirmation before each update
        f"G({_any(_RETAIL_UPDATES)} -> Y reply)",
        # check the status before the action
        _seen(_RETAIL_UPDATES[:4], 'get_order_details, status = "pending"'),
        _seen(_RETAIL_UPDATES[5:], 'get_order_details, status = "delivered"'),
        # tools that can only be called once, after which the order is not touched any more
        "absence(modify_pending_order_items, 2)",
        "absence(exchange_delivered_order_items, 2)",
        "not_response(modify_pending_order_items, cancel_pending_order)",
        "not_response(modify_pending_order_items, modify_pending_order_payment)",
        _TRANSFER,
    ),
    "airline": (
        "F get_user_details",
        f"G({_any(_AIRLINE_UPDATES)} -> Y reply)",
        "G((book_reservation | send_certificate) -> O result(get_user_details, ok = true))",
        _seen((*_AIRLINE_UPDATES[1:], "send_certificate"), "get_reservation_details, ok = true"),
        # at most 100 dollars for each of at most five passengers
        "G !call(send_certificate, amount > 500)",
        _TRANSFER,
    ),
}


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of the benchmark.

    tools  the JSON schema of each tool's arguments
    """

    name: str
    tools: dict[str, dict[str, Any]]
    data: dict[str, Any]
    _classes: dict[str, Any]

    def session(self) -> Session:
        """A session with data of its own, which its calls change."""
        text = json.dumps({name: self.data[name] for name in self.data if name != "flights"})
        return Session(self, json.loads(text))  # several times as fast as a deep copy


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation's copy of the data."""

    domain: Domain
    data: dict[str, Any]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a call, as an object. A tool that raises has refused the call."""
        data = self.data | {name: value for name, value in self.domain.data.items() if name == "flights"}
        try:
            text = str(self.domain._classes[tool].invoke(data, **arguments))
        except Exception as error:  # the tools do not check all arguments
            return {"ok": False, "text": type(error).__name__}
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        return {"ok": not text.startswith("Error"), **(value if isinstance(value, dict) else {"text": value})}


def read_domain(checkout: Path, name: str) -> Domain:
    """A domain of a checkout. Imports the modules of its tools."""
    folder = checkout / _ROOT / name
    for package in ("tau_bench", "tau_bench.envs"):  # their own imports need packages for users' models
        sys.modules.setdefault(package, types.ModuleType(package))
    _load("tau_bench.envs.tool", checkout / _ROOT / "tool.py")
    classes = {}
    for path in sorted((folder / "tools").glob("[a-z]*.py")):
        module = _load(f"tau_bench.envs.{name}_{path.stem}", path)
        found = next(each for each in vars(module).values() if hasattr(each, "get_info") and each.__name__ != "Tool")
        classes[path.stem] = found
    infos = {tool: found.get_info()["function"] for tool, found in classes.items()}
    tools = {infos[tool]["name"]: infos[tool]["parameters"] for tool in classes}
    data = {path.stem: json.loads(path.read_text()) for path in sorted((folder / "data").glob("*.json"))}
    return Domain(name, tools, data, {infos[tool]["name"]: found for tool, found in classes.items()})


def _load(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RandomArguments:
    """Draws arguments for the tools. Most are of one user, so that calls succeed."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        self._data, self._rng = session.data, rng
        self._user_id = rng.choice(sorted(self._data["users"]))
        self._user = self._data["users"][self._user_id]

    def draw(self, schema: dict[str, Any], name: str = "") -> Any:
        """A value of a schema. The name of a property says what it means."""
        known = list(self._known(name))
        if known and self._rng.random() < 0.9:
            return self._rng.choice(known)
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return {key: self.draw(part, key) for key, part in schema.get("properties", {}).items()}
            case "array":
                return [self.draw(schema["items"], name.removesuffix("s")) for _ in range(self._rng.randint(1, 2))]
            case "integer" | "number":
                return self._rng.choice((0, 1, 2, 100, 300, 700, 1000))
            case "boolean":
                return self._rng.random() < 0.5
        return self._rng.choice(("yes", "no", "2024-05-16", "one"))

    def _known(self, name: str) -> Iterator[Any]:
        """Values of the user that a property of this name may have."""
        user = self._user
        names = user["name"]
        held = list(user.get("orders") or user.get("reservations") or ())
        values: dict[str, list[Any]] = {
            "user_id": [self._user_id], "email": [user["email"]], "first_name": [names["first_name"]],
            "last_name": [names["last_name"]], "order_id": held, "reservation_id": held,
            "payment_method_id": list(user["payment_methods"]), "payment_id": list(user["payment_methods"]),
            "zip": [user.get("address", {}).get("zip", "")],
        }  # fmt: skip
        yield from values.get(name, ())
        if name in ("item_id", "new_item_id"):
            for order in held:
                yield from (item["item_id"] for item in self._data["orders"][order]["items"])
