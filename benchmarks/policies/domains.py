"""The domains of tau-bench and tau2, with rules of their policy texts.

The repositories are sierra-research/tau-bench and sierra-research/tau2-bench (MIT). Only the modules of the tools and
the data are read. A result is wrapped in an object whose `ok` says whether the tool has refused the call, so that rules
can speak of it.

The rules say what the texts say of the order of events. What they say of the content of replies, and of amounts that
depend on several results, is left out. What the texts of both repositories say of the order is the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

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

    rules    those of its policy
    tools    the JSON schema of each tool's arguments
    session  opens a session, with data of its own
    """

    name: str
    rules: tuple[str, ...]
    tools: dict[str, dict[str, Any]]
    session: Callable[[], Session]


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation's copy of the data.

    data    as JSON; arguments are drawn from it
    invoke  calls a tool; it raises where the tool refuses the call
    """

    data: dict[str, Any]
    invoke: Callable[[str, dict[str, Any]], Any]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a call, as an object. A tool that raises has refused the call."""
        try:
            value = self.invoke(tool, arguments)
        except Exception as error:  # the tools do not check all arguments
            return {"ok": False, "text": type(error).__name__}
        if isinstance(value, BaseModel):
            return {"ok": True, **value.model_dump(mode="json")}
        text = str(value)
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        return {"ok": not text.startswith("Error"), **(value if isinstance(value, dict) else {"text": value})}


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
        if "anyOf" in schema:
            return self.draw(schema["anyOf"][0], name)
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
