"""The public names of the package match the API schemas."""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
import types
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import abs_client
from abs_client import constraints, errors, events, explanations, forms, ltlf, policies, results
from abs_client._json import json_name
from app.main import create_app
from app.settings import Settings

SCHEMAS: dict[type, str] = {  # client class: schema of the API
    results.Alternative: "AlternativeBody",
    results.Automaton: "AutomatonResponse",
    results.CheckResult: "CheckResponse",
    results.CompileResult: "CompileResponse",
    results.ConjunctCheck: "ConjunctBody",
    results.DecodeResult: "DecodeResponse",
    results.GenerateResult: "GenerateResponse",
    results.GeneratedText: "ChoiceBody",
    results.JobState: "JobResponse",
    results.LabelStep: "LabelStepBody",
    results.ModelCard: "ModelCardBody",
    results.State: "StateBody",
    results.Timings: "TimingsBody",
    results.TokenStep: "TokenStepBody",
    results.TracedWord: "WordBody",
    results.Capture: "CaptureBody",
    results.Transition: "TransitionBody",
    results.Usage: "UsageBody",
    results.Violation: "ViolationBody",
    explanations.CompileWarning: "WarningBody",
    explanations.ExplainedLetter: "Letter",
    explanations.ExplainedState: "StateNote",
    explanations.Explanation: "ConstraintExplanation",
    policies.BrokenRule: "BrokenRuleBody",
    policies.PolicyResult: "PolicyResponse",
    policies.PolicyState: "PolicyStateBody",
    events.Beam: "StepRowBody",
    events.Compilation: "CompiledEventBody",
    events.RejectedToken: "RejectedTokenBody",
    events.Restart: "RestartEventBody",
    events.Step: "StepEventBody",
}
NO_SCHEMA = {results.Readiness, results.Result, events.Done}  # created by the client
ONLY_OPENAI = {"object", "created", "owned_by", "root", "max_model_len"}  # fields of a model card
UNCHECKED_FIELDS = ("beams", "logit_bias", "prefix", "tools", "tool_choice", "stop")  # their values are more than enums
OPTIONS: dict[type, str] = {abs_client.GenerateOptions: "GenerateRequest", abs_client.DecodeOptions: "DecodeRequest"}
ARGUMENTS = {"prompt", "messages", "constraint", "log_probs", "labels", "stream"}  # of the methods, beside the options
JSON_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict, "array": tuple}
PUBLIC = [
    abs_client.client, abs_client.async_client, abs_client.jobs, constraints, errors, events, explanations, forms, ltlf,
    policies, results,
]  # fmt: skip


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = create_app(Settings()).openapi()["components"]["schemas"]
    return schemas


def is_defined_in(module: types.ModuleType, name: str) -> bool:
    return not name.startswith("_") and getattr(vars(module)[name], "__module__", "") == module.__name__


def without_null(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema without null, and whether it allows null."""
    options = schema.get("anyOf", [schema])
    remaining_options = [option for option in options if option.get("type") != "null"]
    return (remaining_options[0] if len(remaining_options) == 1 else {"type": "object"}), len(remaining_options) < len(
        options
    )


def require_same(field_type: Any, schema: dict[str, Any], path: str) -> None:
    """Require that a type equals the type of its schema."""
    schema, nullable = without_null(schema)
    optional = get_origin(field_type) is types.UnionType
    assert optional == nullable, f"{path}: nullable in the schema: {nullable}"
    field_type = get_args(field_type)[0] if optional else field_type
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        plain = field_type == dict[str, Any] and name in ("ProblemBody", "AnswerMessageBody")
        assert plain or SCHEMAS.get(field_type) == name, path
    elif "enum" in schema and get_args(field_type):
        assert set(get_args(field_type)) == set(schema["enum"]), path
    elif schema.get("type") == "array":
        assert get_origin(field_type) is tuple, path
        require_same(get_args(field_type)[0], schema["items"], f"{path}[]")
    else:
        assert (get_origin(field_type) or field_type) is JSON_TYPES[schema["type"]], path


def test_every_public_class_is_in_the_face() -> None:
    for name in abs_client.__all__:
        assert getattr(abs_client, name) is not None
    assert len(set(abs_client.__all__)) == len(abs_client.__all__)
    for module in PUBLIC:
        classes = {
            name for name in vars(module) if is_defined_in(module, name) and isinstance(vars(module)[name], type)
        }
        assert classes <= set(abs_client.__all__), module.__name__
    for name in abs_client.__all__:
        value = getattr(abs_client, name)
        assert not isinstance(value, type) or inspect.getdoc(value), f"{name} has no docstring"


def test_names_of_error_classes_end_in_error() -> None:
    for name, value in vars(errors).items():
        assert not (isinstance(value, type) and issubclass(value, Exception)) or name.endswith("Error"), name


@pytest.mark.parametrize("value_type", SCHEMAS, ids=[value_type.__name__ for value_type in SCHEMAS])
def test_fields_of_a_type_are_those_of_its_schema(value_type: type, schemas: dict[str, Any]) -> None:
    properties = schemas[SCHEMAS[value_type]]["properties"]
    hints = get_type_hints(value_type)
    types_of = {json_name(field): hints[field.name] for field in fields(value_type)}  # type: ignore[arg-type]
    types_of.pop(None, None)
    assert set(types_of) == set(properties) - (ONLY_OPENAI if value_type is results.ModelCard else set())
    for name, field_type in types_of.items():
        assert name is not None
        require_same(field_type, properties[name], f"{value_type.__name__}.{name}")


def test_every_value_type_has_a_schema() -> None:
    for module in (results, events, explanations):
        value_types = {
            value for name, value in vars(module).items() if is_defined_in(module, name) and is_dataclass(value)
        }
        assert value_types <= set(SCHEMAS) | NO_SCHEMA, module.__name__


@pytest.mark.parametrize("options", OPTIONS, ids=[options.__name__ for options in OPTIONS])
def test_options_are_the_fields_of_the_request(options: type, schemas: dict[str, Any]) -> None:
    properties = schemas[OPTIONS[options]]["properties"]
    hints = get_type_hints(options)
    assert set(hints) == set(properties) - ARGUMENTS | {"idempotency_key"}
    for name in set(hints) - {"idempotency_key"}:
        schema, _ = without_null(properties[name])
        choices = {value for hint in get_args(hints[name]) for value in get_args(hint)}
        assert choices == set(schema.get("enum", ())) or name in UNCHECKED_FIELDS, name


@pytest.mark.parametrize("owner", [abs_client, abs_client.Client, abs_client.AsyncClient])
def test_the_example_of_a_docstring_runs(
    owner: Any, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (inspect.getdoc(owner) or "").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("    "))
    end = next(number for number in range(start, len(lines)) if lines[number] and not lines[number].startswith("    "))
    code = textwrap.dedent("\n".join(lines[start:end])).replace("http://127.0.0.1:8000", url)
    monkeypatch.setenv("ABS_BASE_URL", url)
    program = compile(code, "docstring", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(program, dict(vars(abs_client)))
    if inspect.iscoroutine(result):
        asyncio.run(result)
    output = capsys.readouterr().out
    assert "dog" in output and "ball" in output
