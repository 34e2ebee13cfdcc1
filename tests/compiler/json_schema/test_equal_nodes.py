"""Tests that equal parts of a schema are compiled once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema import translation
from compiler.json_schema.clauses import merge_equal_nodes
from compiler.json_schema.nodes import Schema
from compiler.json_schema.reader import SchemaReader
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json
from compiler.text import PushdownText
from tests.compiler.json_schema.test_random_schemas import compiled, random_schema

NAMES = ("a", "b", "ab")


def apart(nodes: Sequence[Schema], guard: ResourceGuard) -> tuple[Schema, ...]:
    return tuple(nodes)


def repeated_schema(rng: random.Random, parts: list[Any], depth: int) -> Any:
    """A schema that repeats some parts under other titles."""
    if depth == 0 or rng.random() < 0.3:
        part = rng.choice(parts)
        return {**part, "title": str(rng.random())} if isinstance(part, dict) else part
    kind = rng.choice(("properties", "items", "allOf", "anyOf", "oneOf", "not"))
    if kind in ("items", "not"):
        return {kind: repeated_schema(rng, parts, depth - 1)}
    below = [repeated_schema(rng, parts, depth - 1) for _ in range(2)]
    return {kind: dict(zip(rng.sample(NAMES, 2), below, strict=True)) if kind == "properties" else below}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(1)
def test_random_schemas_keep_their_texts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, compared = random.Random(seed), 0
    for _ in range(12):
        parts = [random_schema(rng, 1) for _ in range(2)] + [{"$ref": "#/$defs/x"}]
        schema = repeated_schema(rng, parts, 3)
        recursive = {"items": {"$ref": rng.choice(("#/$defs/x", "#"))}}
        schema = {"$defs": {"x": recursive}, "allOf": [schema]}
        try:
            once = compiled(schema)
            with monkeypatch.context() as patch:
                patch.setattr(translation, "merge_equal_nodes", apart)
                copied = compiled(schema)
        except (SpecUnsupported, LimitExceeded):
            continue
        compared += 1
        assert np.array_equal(once.dfa.next_state, copied.dfa.next_state), schema
        assert np.array_equal(once.dfa.accepting, copied.dfa.accepting), schema
        assert np.array_equal(once.minterms.cuts, copied.minterms.cuts), schema
    assert compared >= 5


def test_titles_tell_no_schemas_apart() -> None:
    def tree(title: str) -> dict[str, Any]:
        leaf = {"type": "object", "title": title, "properties": {"n": {"type": "integer", "title": title}}}
        return {"type": "object", "title": title, "properties": {"x": leaf, "y": {"type": "array", "items": leaf}}}

    titles = [f"t{number}" for number in range(20)]
    schema = {"type": "object", "properties": {title: tree(title) for title in titles}}
    text = compile_text(spec_from_json({"json_schema": schema}))
    assert isinstance(text, PushdownText)
    inner = ["properties.t0", "properties.t0.properties.x", "properties.t0.properties.y"]
    assert {*text.machine.rules} == {"the text", "any value", *(f"json_schema.{name}" for name in inner)}


def test_values_that_python_takes_for_equal_stay_apart() -> None:
    for one, other in ((1, True), (0, False), (1, 1.0)):
        schema = {"properties": {"a": {"enum": [one, "x"]}, "b": {"enum": [other, "x"]}}}
        merged = merge_equal_nodes(SchemaReader(schema, ResourceGuard(Limits())).nodes, ResourceGuard(Limits()))
        objects = merged[0].objects
        assert objects is not None and len({node for _, node in objects.properties}) == 2


def test_a_string_beside_a_negation_stays_apart() -> None:
    text = {"type": "string", "maxLength": 30_000}
    schema = {"properties": {"a": text, "b": {"allOf": [text], "not": {"const": 1}}}}
    merged = merge_equal_nodes(SchemaReader(schema, ResourceGuard(Limits())).nodes, ResourceGuard(Limits()))
    objects = merged[0].objects
    assert objects is not None
    (_, alone), (_, beside) = objects.properties
    assert alone not in merged[beside].all_of
