"""The benchmark of policies on a small domain."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from app.settings import BUILT_IN_MODEL
from benchmarks.policies import __main__ as benchmark
from benchmarks.policies import service
from benchmarks.policies.agents import EventModel
from benchmarks.policies.domains import Domain, RandomArguments
from benchmarks.policies.service import policy_service, served_figures
from benchmarks.policies.tau import domain_of
from benchmarks.policies.tau2 import read_tau2_domain
from compiler.policies import EventKind
from tests.servers.small_model import small_model

TAU2 = {  # small files of our own in the layout of tau2
    "src/tau2/environment/db.py": "from tau2.utils.pydantic_utils import BaseModelNoExtra as DB",
    "src/tau2/environment/toolkit.py": """
from tau2.environment.tool import Tool, as_tool
class ToolKitBase:
    def __init__(self, db): self.db = db
    @property
    def tools(self): return {"get_order": self.get_order}
    def use_tool(self, name, **arguments): return self.tools[name](**arguments)
""",
    "src/tau2/domains/retail/utils.py": "from tau2.utils.utils import DATA_DIR",
    "src/tau2/domains/retail/data_model.py": """
from pydantic import BaseModel
from tau2.environment.db import DB
class Order(BaseModel): status: str
class Reason(BaseModel): text: str
class RetailDB(DB):
    orders: dict[str, Order]
    users: dict[str, dict]
""",
    "src/tau2/domains/retail/tools.py": """
from loguru import logger
from tau2.domains.retail.data_model import Order, Reason, RetailDB
from tau2.environment.toolkit import ToolKitBase
class RetailTools(ToolKitBase):
    def get_order(self, order_id: str, reasons: list[Reason | dict]) -> Order:
        logger.info("called")
        self.db.orders[order_id].status = "seen"
        return self.db.orders[order_id]
""",
    "data/tau2/domains/retail/db.json": json.dumps({"orders": {"o1": {"status": "new"}}, "users": {}}),
}  # fmt: skip
ORDER = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
USERS = {"u1": {"name": {"first_name": "A", "last_name": "B"}, "email": "a@b", "orders": ["o1"], "payment_methods": {}}}


class Look:
    @staticmethod
    def invoke(data: dict[str, Any], order_id: str) -> str:
        return json.dumps(data["orders"][order_id])


class Cancel:
    @staticmethod
    def invoke(data: dict[str, Any], order_id: str) -> str:
        if data["orders"][order_id]["status"] != "pending":
            return "Error: the order is not pending"
        data["orders"][order_id]["status"] = "cancelled"
        return json.dumps(data["orders"][order_id])


@pytest.fixture
def shop() -> Domain:
    rules = ('G(cancel_order -> O result(get_order, status = "pending"))', "F get_order")
    data = {"users": USERS, "orders": {"o1": {"status": "pending", "items": []}}}
    tools = {"get_order": Look, "cancel_order": Cancel}
    return domain_of("shop", rules, dict.fromkeys(tools, ORDER), data=data, classes=tools)


def test_a_session_changes_its_own_data_alone(shop: Domain) -> None:
    session = shop.session()
    assert session.call("cancel_order", {"order_id": "o1"}) == {"ok": True, "status": "cancelled", "items": []}
    assert session.call("cancel_order", {"order_id": "o1"})["ok"] is False
    assert session.call("get_order", {"order_id": "unknown"}) == {"ok": False, "text": "KeyError"}
    assert shop.session().call("get_order", {"order_id": "o1"})["status"] == "pending"


def test_arguments_are_mostly_those_of_the_user(shop: Domain) -> None:
    arguments = RandomArguments(shop.session(), benchmark.random.Random(1))
    drawn = [arguments.draw(ORDER)["order_id"] for _ in range(50)]
    assert 30 < drawn.count("o1") < 50


@pytest.mark.long
def test_a_model_proposes_names_of_events(shop: Domain) -> None:
    model = EventModel(Path(BUILT_IN_MODEL))
    names = model.names(shop, [])
    assert set(names) <= {"get_order", "cancel_order", "reply"} and len(names) == 8
    assert model.names(shop, []) is names and len(model.ms) == 1  # drawn once
    policy = benchmark.read_rules_of(shop)
    played = [benchmark.play(shop, policy, "ours", model, calls=3, seed=seed) for seed in range(5)]
    assert not any(each.stuck or policy.violations(each.events, ended=True) for each in played)


@pytest.fixture
def no_modules_stay() -> Iterator[None]:
    """The stubs of tau2's packages are removed after the test."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("tau2", "loguru"):
            del sys.modules[name]


@pytest.mark.usefixtures("no_modules_stay")
def test_a_domain_of_tau2_is_read(tmp_path: Path) -> None:
    for path, text in TAU2.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    domain = read_tau2_domain(tmp_path, "retail", tmp_path)
    assert domain.name == "tau2 retail" and list(domain.tools) == ["get_order"]
    assert domain.tools["get_order"]["properties"]["reasons"]["items"]["anyOf"][0]["properties"].keys() == {"text"}
    first, second = domain.session(), domain.session()
    assert first.call("get_order", {"order_id": "o1", "reasons": []}) == {"ok": True, "status": "seen"}
    assert first.call("get_order", {"order_id": "o2", "reasons": []}) == {"ok": False, "text": "KeyError"}
    assert second.data["orders"] == {"o1": {"status": "new"}}


@pytest.mark.parametrize("agent", ["random", "adversarial"])
def test_ours_keeps_all_rules_where_others_lose_some(shop: Domain, agent: Literal["random", "adversarial"]) -> None:
    policy = benchmark.read_rules_of(shop)
    conform = {}
    for system in ("free", "masks", "ours"):
        played = [benchmark.play(shop, policy, system, agent, calls=3, seed=seed) for seed in range(30)]
        conform[system] = sum(not each.stuck and not policy.violations(each.events, ended=True) for each in played)
        assert all(each.events[-1].kind is EventKind.REPLY for each in played if not each.stuck)
        assert all(sum(event.kind is EventKind.CALL for event in each.events) <= 3 for each in played)
    assert conform["ours"] == 30
    assert conform["free"] < 30 and conform["masks"] < 30


def test_a_service_keeps_all_rules(shop: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_TOKENS", 56)
    monkeypatch.setattr(service, "BUILT_IN_MODEL", small_model())
    with policy_service() as http:
        row = served_figures(http, shop, benchmark.read_rules_of(shop), conversations=2, calls=1, seed=1)
    assert row["conform"] == row["conversations"] == 2 and row["stuck"] == 0 and row["calls"] >= 1
    assert row["with"]["requests"] == row["without"]["requests"] and row["with"]["compiled"] >= 1
    for kind in ("with", "without"):
        assert 0 < row[kind]["overhead_ms"]["p50"] < row[kind]["request_ms"]["p99"]
