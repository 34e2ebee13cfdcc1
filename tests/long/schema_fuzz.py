"""Fuzzes generation under random and public JSON schemas.

    python -m tests.long.schema_fuzz --generations 20000 --seed 1 [--data CHECKOUT]

Budgets go from the least up. Every answer must fit its budget, parse as JSON, be valid by `jsonschema`, and pass the
check. With `--data`, a checkout of guidance-ai/jsonschemabench, half of the schemas are those of its development
quarter. A failure prints its seed.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.maskbench.suite import read_case, select
from compiler.artifact import CompiledConstraint
from compiler.errors import CompileError, LimitExceeded, SpecError, SpecUnsatisfiable
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.spec import JsonSchemaSpec, spec_from_json
from compiler.spec.types import PropertyOrder, WhiteSpace
from compiler.text import answer_text, check_text
from compiler.vocab import Vocabulary, byte_vocabulary
from tests.compiler.json_schema.test_random_schemas import random_schema, random_value
from tests.fake_models import HashModel
from tests.long.fuzz import value_passes
from tests.long.fuzz_paths import Case, by_sampling, by_search, text_bytes
from tests.references.json_validator import is_valid
from tests.references.random_constraints import open_real_model, real_vocabulary

BUDGETS = (0, 0, 0, 1, 2, 5, 12, 40)  # tokens beyond the least budget, one generation each
SHORT_TOKENS = 50  # longer answers get one budget
LEAST_MAX = 400  # tokens; longer answers take too long
REAL_MODEL_SHARE = 0.1
LIMITS = Limits(compile_s_max=30.0)
VALUES = 200  # random ones, of which none may fit a schema that is said to have none


def vocabulary_and_model(draw: random.Random) -> tuple[Vocabulary, Any]:
    """A small vocabulary that spells every byte, and a model. The model is random, or seldom a trained one."""
    if draw.random() < REAL_MODEL_SHARE:
        model, vocabulary = open_real_model(draw)
        return vocabulary, model
    vocabulary = byte_vocabulary()
    if draw.random() < 0.7:
        vocabulary = real_vocabulary("stories260k", 512, 2) or vocabulary
    spread = draw.choice((1.0, 3.0, 30.0))
    return vocabulary, HashModel(vocabulary.size, vocabulary.eos_ids, seed=draw.randrange(2**30), spread=spread)


def ranking(draw: random.Random) -> tuple[Any, Any]:
    """An array of distinct values of a list."""
    count = draw.randint(2, 30)
    texts = {"".join(draw.choices("abcé ", k=draw.randint(1, 6))) for _ in range(count)}
    values = draw.sample([*sorted(texts), *range(draw.randrange(4))], len(texts))
    least = draw.randint(0, len(values))
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "minItems": least}
    schema |= {"maxItems": draw.randint(least, len(values))} if draw.random() < 0.7 else {}
    return schema, draw.sample(values, least)


def named(draw: random.Random) -> tuple[Any, Any]:
    """An object whose names are finitely many."""
    names = draw.sample(("k1", "k2", "k3", "é", "x y"), draw.randint(1, 5))
    least = draw.randint(0, len(names))
    schema: dict[str, Any] = {"type": "object", "minProperties": least}
    if draw.random() < 0.5:
        schema |= {"propertyNames": {"enum": names}, "additionalProperties": {"type": "integer"}}
    else:
        pattern = f"^({'|'.join(names)})$"
        schema |= {"patternProperties": {pattern: {"type": "integer"}}, "additionalProperties": False}
    return schema, dict.fromkeys(names[:least], 1)


def conditional(draw: random.Random) -> tuple[Any, Any]:
    """An object whose further properties follow from the value of one."""
    kinds = draw.sample(("a", "b", "c", "d"), draw.randint(2, 4))
    properties = {"kind": {"enum": kinds}}
    branches = [
        {
            "if": {"properties": {"kind": {"const": kind}}},
            "then": {"properties": {f"{kind}_value": random_schema(draw, 1)}, "required": draw.choice(([], ["n"]))},
        }
        for kind in kinds[1:]
    ]
    schema = {"type": "object", "properties": properties | {"n": {"type": "integer"}}, "required": ["kind"]}
    return schema | {"allOf": branches}, {"kind": kinds[0]}


def around(draw: random.Random, schema: Any, value: Any) -> tuple[Any, Any]:
    """A schema and a value, mostly as a property or an item."""
    kind = draw.randrange(3)
    if kind == 0:
        return {"type": "object", "properties": {"p": schema, "q": {"type": "null"}}, "required": ["p"]}, {"p": value}
    return ({"type": "array", "items": schema, "maxItems": 2}, [value]) if kind == 1 else (schema, value)


def run_schema(seed: int, paths: list[Path]) -> collections.Counter[str]:
    """The outcomes of one schema's generations by name. That of a failure begins with "FAILED"."""
    draw = random.Random(seed)
    path = draw.choice(paths) if paths and draw.random() < 0.5 else None
    schema, value = (read_case(path).schema if path else random_schema(draw, 2)), None
    source = "public" if path else "random"
    if not path and draw.random() < 0.5:
        schema, value = around(draw, *draw.choice((ranking, named, conditional))(draw))
        source = "made"
    vocabulary, model = vocabulary_and_model(draw)
    whitespace, order = draw.choice(get_args(WhiteSpace)), draw.choice(get_args(PropertyOrder))
    constraint = {"json_schema": schema, "whitespace": whitespace, "property_order": order}
    constraint |= {"max_depth": draw.randint(1, 3)} if draw.random() < 0.3 else {}
    constraint |= {"closed_objects": True} if draw.random() < 0.3 else {}
    try:
        compiled = compile_spec(spec_from_json(constraint), vocabulary, LIMITS)
    except SpecUnsatisfiable:
        return collections.Counter([_refusal(draw, schema, value)])
    except (SpecError, LimitExceeded):
        return collections.Counter([f"{source} schemas refused"])
    outcomes = collections.Counter([f"{source} schemas compiled"])
    least = compiled.tokens.min_tokens
    if least > LEAST_MAX:
        return outcomes
    for extra in BUDGETS if least < SHORT_TOKENS else draw.sample(BUDGETS, 1):
        case = Case(vocabulary, compiled.tokens, model, (vocabulary.eos_ids[0],), least + extra, None)
        answers = (by_search if draw.random() < 0.3 else by_sampling)(case, draw)
        outcomes["generations"] += 1
        for tokens in answers:
            text = answer_text(compiled.text, text_bytes(vocabulary, tokens[:-1]).decode())
            outcomes[judge(schema, compiled, text, len(tokens) <= least + extra)] += 1
    return outcomes


def _refusal(draw: random.Random, schema: Any, value: Any) -> str:
    """The outcome of a schema that is said to have no value. `value` is one; None for a schema without a known one."""
    values = [random_value(draw, 2) for _ in range(VALUES)] if value is None else [value]
    fitting = next((text for each in values if is_valid(schema, text := json.dumps(each))), None)
    return "schemas without values" if fitting is None else f"FAILED: {schema} is refused, though {fitting} fits"


def judge(schema: Any, compiled: CompiledConstraint, text: str, is_within: bool) -> str:
    """The outcome of one answer."""
    try:
        passes = check_text(compiled.text, text).satisfied
        assert isinstance(compiled.spec, JsonSchemaSpec)
        passes &= value_passes(compiled.spec, text, LIMITS)
    except CompileError as error:
        return f"FAILED: the check of {text!r} raises {error}"
    verdict = is_valid(schema, text)
    if not is_within or not passes or verdict is False:
        return f"FAILED: {text!r} within the budget: {is_within}, by the check {passes}, by jsonschema {verdict}"
    return "answers valid" if verdict else "answers that jsonschema cannot judge"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="a checkout of guidance-ai/jsonschemabench, or its folder of files")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this time")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of `re` and `jsonschema` about odd schemas
    torch.set_num_threads(1)
    paths = select(args.data, "development", None, args.seed) if args.data else []
    outcomes, start, seed = collections.Counter[str](), time.monotonic(), args.seed * 10_000_000
    while outcomes["generations"] < args.generations and time.monotonic() - start < args.seconds:
        try:
            found = run_schema(seed, paths)
        except Exception as error:  # whatever it is, the seed must be known
            found = collections.Counter([f"FAILED: {type(error).__name__}: {error}"])
        for failure in [name for name in found if name.startswith("FAILED")]:
            print(f"seed {seed}: {failure}", flush=True)
            outcomes["failures"] += found.pop(failure)
        outcomes.update(found)
        seed += 1
        if seed % 100 == 0:
            print(f"before seed {seed}: {dict(outcomes)}", flush=True)
    print(f"{outcomes['generations']} generations, {time.monotonic() - start:.0f} s: {dict(outcomes)}")
    return 1 if outcomes["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
