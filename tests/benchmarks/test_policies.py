"""The benchmark of policies on a small domain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.policies import __main__ as benchmark
from benchmarks.policies import domains
from benchmarks.policies.domains import Domain, RandomArguments
from compiler.policies import EventKind

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
def shop(monkeypatch: pytest.MonkeyPatch) -> Domain:
    rules = ('G(cancel_order -> O result(get_order, status = "pending"))', "F get_order")
    monkeypatch.setitem(domains.RULES, "shop", rules)
    data = {"users": USERS, "orders": {"o1": {"status": "pending", "items": []}}}
    tools = {"get_order": Look, "cancel_order": Cancel}
    return Domain("shop", dict.fromkeys(tools, ORDER), data, tools)


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


@pytest.mark.parametrize("agent", ["random", "adversarial"])
def test_ours_keeps_all_rules_where_others_lose_some(shop: Domain, agent: benchmark.Agent) -> None:
    policy = benchmark.read_rules_of(shop)
    conform = {}
    for system in ("free", "masks", "ours"):
        played = [benchmark.play(shop, policy, system, agent, calls=3, seed=seed) for seed in range(30)]
        conform[system] = sum(not each.stuck and not policy.violations(each.events, ended=True) for each in played)
        assert all(each.events[-1].kind is EventKind.REPLY for each in played if not each.stuck)
        assert all(sum(event.kind is EventKind.CALL for event in each.events) <= 3 for each in played)
    assert conform["ours"] == 30
    assert conform["free"] < 30 and conform["masks"] < 30
