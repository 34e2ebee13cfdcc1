"""Keys are defined in app/messages/keys.py and in the scripts' table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import app.messages.keys
from app.broker.redis.scripts import SERVICE_KEYS
from app.messages import (
    automaton_key,
    charge_key,
    explanation_key,
    failure_key,
    slots_key,
    store_share_key,
    tokens_key,
    window_key,
)
from compiler.limits import Limits

APP = Path(app.messages.keys.__file__).parents[1]
BROKER = APP / "broker" / "redis"
KEY = re.compile(r"\{abs\}:\S*")


def spelled(path: Path) -> set[str]:
    """The keys in a module's strings, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        id(node.body[0].value) for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    ]
    return {found for text in texts for found in KEY.findall(text)}


def test_only_the_key_and_broker_modules_spell_storage_keys() -> None:
    assert spelled(APP / "messages" / "keys.py")
    for path in APP.rglob("*.py"):
        if path.parent != APP / "messages" and BROKER not in path.parents:
            assert not spelled(path) and "KEY_PREFIX" not in path.read_text(encoding="utf-8"), path


def test_keys_of_the_broker_are_in_its_table() -> None:
    modules = "".join(path.read_text(encoding="utf-8") for path in BROKER.glob("*.py"))
    table = (BROKER / "lua" / "README.md").read_text(encoding="utf-8")
    found = set(re.findall(r"\{KEY_PREFIX\}([a-z]+)", modules))
    found |= {key.rpartition(":")[2] for key in SERVICE_KEYS}
    assert len(found) > 12
    assert not [key for key in found if f"\n| `{{abs}}:{key}" not in table]


def test_scripts_of_the_broker_take_all_their_keys_as_arguments() -> None:
    for path in (BROKER / "lua").glob("*.lua"):
        code = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        for call in re.findall(r"redis\.p?call\([^)]*", code):
            channel = re.match(r"redis\.call\('PUBLISH', '\{abs\}:(?:news:|arrivals)'", call)
            assert channel or "{abs}" not in call, f"{path.name}: {call}"


def test_keys_of_different_kinds_are_different() -> None:
    one = "0" * 64
    keys = [
        automaton_key(one), explanation_key(one), store_share_key(one), slots_key(one), tokens_key(one),
        charge_key(one), window_key("requests", one), window_key("lookups", one),
    ]
    assert len(set(keys)) == len(keys)


def test_a_failure_is_that_of_its_limits() -> None:
    keys = {failure_key("0" * 64, {"regex": "a"}, limits) for limits in (Limits(), Limits(dfa_states_max=9))}
    assert len(keys) == 2
