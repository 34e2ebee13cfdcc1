"""Keys have one place: app/messages/keys.py, and for the records of the broker the table at the head of its scripts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import app.messages.keys
from app.messages import automaton_key, charge_key, explanation_key, slots_key, store_share_key, tokens_key, window_key

APP = Path(app.messages.keys.__file__).parents[1]
BROKER = APP / "broker" / "redis"
KEY = re.compile(r"\b(?:streaq:)?abs:[a-z{]\S*")


def spelled(path: Path) -> set[str]:
    """The keys in the texts of a module, those that only document it aside."""
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
        if path != APP / "messages" / "keys.py" and BROKER not in path.parents:
            assert not spelled(path), path


def test_keys_of_the_broker_scripts_are_in_their_table() -> None:
    common = (BROKER / "lua" / "common.lua").read_text(encoding="utf-8")
    table = common.partition("\nlocal ")[0]
    scripts = "".join(path.read_text(encoding="utf-8") for path in (BROKER / "lua").glob("*.lua"))
    found = {match[1] for match in re.finditer(r"'(abs:[a-z]+)", scripts)}
    found |= {re.match(r"abs:[a-z]+", key)[0] for path in BROKER.glob("*.py") for key in spelled(path)}  # type: ignore[index]
    missing = {key for key in found if not re.search(rf"^-- (?:.*, )?{key}\b", table, re.MULTILINE)}
    assert len(found) > 8 and missing <= {"abs:"}, missing


def test_keys_of_different_kinds_are_different() -> None:
    one = "0" * 64
    keys = [
        automaton_key(one), explanation_key(one), store_share_key(one), slots_key(one), tokens_key(one),
        charge_key(one), window_key("requests", one), window_key("lookups", one),
    ]
    assert len(set(keys)) == len(keys)
