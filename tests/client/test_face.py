"""The public names of the package, and the fields of its types beside the schemas of the API."""

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
from abs_client import constraints, errors, events, forms, ltlf, results
from abs_client._json import json_name
from app.main import create_app
from app.settings import Settings

SCHEMAS: dict[type, str] = {  # client class: schema of the API
    results.Automaton: "AutomatonResponse",
    results.CheckResult: "CheckResponse",
    results.CompileResult: "CompileResponse",
    results.ConjunctCheck: "ConjunctBody",
    results.DecodeResult: "DecodeResponse",
    results.ExplainedLetter: "Letter",
    results.ExplainedState: "StateNote",
    results.Explanation: "ConstraintExplanation",
    results.GenerateResult: "GenerateResponse",
    results.GeneratedText: "ChoiceBody",
    results.JobState: "JobResponse",
    results.LabelStep: "LabelStepBody",
    results.ModelCard: "ModelCardBody",
    results.State: "StateBody",
    results.Timings: "TimingsBody",
    results.TokenStep: "TokenStepBody",
    results.TracedWord: "WordBody",
    results.Transition: "TransitionBody",
    results.Usage: "UsageBody",
    events.Beam: "StepRowBody",
    events.Compilation: "CompiledEventBody",
    events.RejectedToken: "RejectedTokenBody",
    events.Restart: "RestartEventBody",
    events.Step: "StepEventBody",
}
NO_SCHEMA = {results.Readiness, results.Result, events.Done}  # made by the client
ONLY_OPENAI = {"object", "created", "owned_by"}  # fields of a model card
OPTIONS: dict[type, str] = {
    abs_client.GenerateOptions: "GenerateRequest", abs_client.DecodeOptions: "DecodeRequest",
}  # fmt: skip
ARGUMENTS = {"prompt", "constraint", "log_probs", "labels", "stream"}  # of the methods, beside the options
JSON_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict, "array": tuple}
PUBLIC = [abs_client.client, abs_client.async_client, constraints, errors, events, forms, ltlf, results]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = create_app(Settings()).openapi()["components"]["schemas"]
    return found


def defined(module: types.ModuleType, name: str) -> bool:
    return not name.startswith("_") and getattr(vars(module)[name], "__module__", "") == module.__name__


def without_null(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema without null, and whether it allows null."""
    options = schema.get("anyOf", [schema])
    other = [option for option in options if option.get("type") != "null"]
    return (other[0] if len(other) == 1 else {"type": "object"}), len(other) < len(options)


def require_same(kind: Any, schema: dict[str, Any], where: str) -> None:
    """The type of a field is that of its schema."""
    schema, nullable = without_null(schema)
    optional = get_origin(kind) is types.UnionType
    assert optional == nullable, f"{where}: nullable in the schema: {nullable}"
    kind = get_args(kind)[0] if optional else kind
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        assert SCHEMAS.get(kind) == name or (kind, name) == (dict[str, Any], "ProblemBody"), where
    elif "enum" in schema and get_args(kind):
        assert set(get_args(kind)) == set(schema["enum"]), where
    elif schema.get("type") == "array":
        assert get_origin(kind) is tuple, where
        require_same(get_args(kind)[0], schema["items"], f"{where}[]")
    else:
        assert (get_origin(kind) or kind) is JSON_TYPES[schema["type"]], where


def test_every_public_class_is_in_the_face() -> None:
    for name in abs_client.__all__:
        assert getattr(abs_client, name) is not None
    assert len(set(abs_client.__all__)) == len(abs_client.__all__)
    for module in PUBLIC:
        classes = {name for name in vars(module) if defined(module, name) and isinstance(vars(module)[name], type)}
        assert classes <= set(abs_client.__all__), module.__name__
    for name in abs_client.__all__:
        value = getattr(abs_client, name)
        assert not isinstance(value, type) or inspect.getdoc(value), f"{name} has no docstring"


def test_names_of_error_classes_end_in_error() -> None:
    for name, value in vars(errors).items():
        assert not (isinstance(value, type) and issubclass(value, Exception)) or name.endswith("Error"), name


@pytest.mark.parametrize("kind", SCHEMAS, ids=[kind.__name__ for kind in SCHEMAS])
def test_fields_of_a_type_are_those_of_its_schema(kind: type, schemas: dict[str, Any]) -> None:
    properties = schemas[SCHEMAS[kind]]["properties"]
    hints = get_type_hints(kind)
    types_of = {json_name(field): hints[field.name] for field in fields(kind)}  # type: ignore[arg-type]
    types_of.pop(None, None)
    assert set(types_of) == set(properties) - (ONLY_OPENAI if kind is results.ModelCard else set())
    for name, of_field in types_of.items():
        assert name is not None
        require_same(of_field, properties[name], f"{kind.__name__}.{name}")


def test_every_value_type_has_a_schema() -> None:
    for module in (results, events):
        kinds = {value for name, value in vars(module).items() if defined(module, name) and is_dataclass(value)}
        assert kinds <= set(SCHEMAS) | NO_SCHEMA, module.__name__


@pytest.mark.parametrize("options", OPTIONS, ids=[options.__name__ for options in OPTIONS])
def test_options_are_the_fields_of_the_request(options: type, schemas: dict[str, Any]) -> None:
    properties = schemas[OPTIONS[options]]["properties"]
    hints = get_type_hints(options)
    assert set(hints) == set(properties) - ARGUMENTS | {"idempotency_key"}
    for name in set(hints) - {"idempotency_key"}:
        schema, _ = without_null(properties[name])
        allowed = {value for kind in get_args(hints[name]) for value in get_args(kind)}
        assert allowed == set(schema.get("enum", ())) or name == "beams", name


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            "close" if name == "aclose" else name: [*inspect.signature(value).parameters]
            for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")
        }  # fmt: skip

    assert methods(abs_client.Client) == methods(abs_client.AsyncClient)
    assert methods(abs_client.Stream) == methods(abs_client.AsyncStream)
    assert methods(abs_client.Job) == methods(abs_client.AsyncJob)
    for kind in (abs_client.Client, abs_client.AsyncClient):
        assert all(inspect.getdoc(value) for name, value in vars(kind).items() if not name.startswith("_"))
        parameters = [*inspect.signature(kind).parameters]
        assert all(f"    {name} " in (kind.__doc__ or "") for name in parameters), "a parameter is not described"


@pytest.mark.parametrize("documented", [abs_client, abs_client.Client, abs_client.AsyncClient])
def test_the_example_of_a_docstring_runs(
    documented: Any, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (inspect.getdoc(documented) or "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("    "))
    last = next(number for number in range(first, len(lines)) if lines[number] and not lines[number].startswith("    "))
    code = textwrap.dedent("\n".join(lines[first:last])).replace("http://127.0.0.1:8000", url)
    monkeypatch.setenv("ABS_BASE_URL", url)
    compiled = compile(code, "docstring", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(compiled, dict(vars(abs_client)))
    if inspect.iscoroutine(waiting):
        asyncio.run(waiting)
    shown = capsys.readouterr().out
    assert "dog" in shown and "ball" in shown
