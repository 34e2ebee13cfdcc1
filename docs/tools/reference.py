"""The API reference in Markdown, generated from the OpenAPI document.

It lists paths, fields, answers and error codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

import app.errors
import compiler.errors
import decoding.errors
from app.observability import metrics
from compiler.errors import ErrorFacts

Schema = Mapping[str, Any]


def _error_classes() -> Iterator[type[Exception]]:
    """The error classes of the packages that have no subclass."""
    for module in (app.errors, compiler.errors, decoding.errors):
        for item in vars(module).values():
            if isinstance(item, type) and issubclass(item, Exception) and not item.__subclasses__():
                yield item


ERRORS: dict[str, ErrorFacts] = {kind.__name__: kind.facts for kind in _error_classes()}  # type: ignore[attr-defined]
CODES = sorted({facts.code for facts in ERRORS.values()} - {"client_gone"})  # no caller reads it
_OF_FIELDS = re.compile(r"^(?P<names>[a-z_]+(?:, [a-z_]+)*) {2,}(?P<text>\S.*)$")
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_BEYOND = 2**53  # larger bounds only describe the storage of an integer


def reference(document: Schema) -> str:
    """The whole reference, without the page's heading."""
    parts = ["## Paths", ""]
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts += _operation(method.upper(), path, operation, schemas)
    parts += ["## Constraint", "", "An object of exactly one of these forms; [their meanings](constraints.md).", ""]
    for form in schemas["CompileRequest"]["properties"]["constraint"]["anyOf"][0]["oneOf"]:
        parts += _form(form)
    parts += ["## Objects", ""]
    bodies = {name for name in schemas if name.endswith("Request")}  # shown at their paths
    for name, schema in sorted(schemas.items()):
        if name != "ProblemBody" and name not in bodies:  # equal to Problem
            parts += [f"### {name}", "", *_object(schema), ""]
    return "\n".join(parts)


def error_facts(code: str) -> tuple[str, str, str]:
    """Status, titles and body fields of the classes with an error code."""
    rows = [row for row in ERRORS.values() if row.code == code]
    (status,) = {row.status for row in rows}
    titles = "; ".join(dict.fromkeys(row.title for row in rows))
    fields = dict.fromkeys(field for row in rows for field in row.fields)
    return str(status), titles, ", ".join(f"`{field}`" for field in fields)


def error_line(code: str) -> str:
    """The facts of an error code in one line."""
    status, titles, field_list = error_facts(code)
    return f"**{status}** · {titles}" + (f" · also in the body: {field_list}" if field_list else "")


def metrics_table() -> str:
    """All metrics with their labels and meanings."""
    head, rows = ("| metric | labels | |", "|---|---|---|"), []
    for collector in (value for value in vars(metrics).values() if isinstance(value, MetricWrapperBase)):
        for metric in collector.describe():
            ending = "_total" if metric.type == "counter" else ""
            labels = ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
            rows.append(f"| `{metric.name}{ending}` | {labels} | {metric.documentation} |")
    return "\n".join([*head, *sorted(rows)])


def _operation(method: str, path: str, operation: Schema, schemas: Schema) -> Iterator[str]:
    yield from (f"### {method} {path}", "", f"{operation['summary']}.", "")
    if operation.get("description"):
        yield from (operation["description"], "")
    parameters = operation.get("parameters", ())
    if parameters:
        rows = {item["name"]: {**item["schema"], "description": item.get("description", "")} for item in parameters}
        locations = {item["name"]: item["in"] for item in parameters}
        required = [item["name"] for item in parameters if item.get("required")]
        yield from _fields(rows, required, {name: f"in the {location}" for name, location in locations.items()})
    body = operation.get("requestBody", {}).get("content", {})
    for kind, content in body.items():
        yield from (f"**Body**, {_kind(content['schema'])} as `{kind}`", "")
        yield from _object(schemas[_name(content["schema"])])
    yield from _answers(operation["responses"])


def _answers(responses: Schema) -> Iterator[str]:
    yield from ("| status | answer |", "|---|---|")
    for status, response in sorted(responses.items()):
        text = response["description"] if status.startswith("2") else _codes(response["description"])
        text = "" if text == "Successful Response" else text
        fields = [
            f"{_kind(content['schema'])} (`{kind}`)"
            for kind, content in response.get("content", {}).items()
            if status.startswith("2")
        ]
        yield f"| {status} | {'; '.join([*fields, *([text] if text else [])])} |"
    yield ""


def _codes(description: str) -> str:
    """Turns each code of a response into a link to its section."""
    return re.sub(r"[a-z_]+", lambda word: f"[`{word[0]}`](errors.md#{word[0]})" if word[0] in CODES else word[0],
                  description)


def _form(form: Schema) -> Iterator[str]:
    yield from (f"### {form['title']}", "", f"{form['description']}.", "")
    yield from _fields(form["properties"], form.get("required", ()), {})


def _object(schema: Schema) -> Iterator[str]:
    text, of_fields = _describe(schema.get("description", ""))
    if text:
        yield from (text, "")
    yield from _fields(schema.get("properties", {}), schema.get("required", ()), of_fields)


def _describe(docstring: str) -> tuple[str, dict[str, str]]:
    """A docstring's prose, and its field descriptions. Fields are lines of the shape `name  text`."""
    prose: list[str] = []
    fields: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.splitlines():
        match = _OF_FIELDS.match(line)
        if match:
            names = match["names"].split(", ")
            fields |= dict.fromkeys(names, match["text"])
        elif names and line.startswith("   "):
            fields |= {name: f"{fields[name]} {line.strip()}" for name in names}
        else:
            names = []
            prose.append(line)
    return "\n".join(prose).strip(), fields


def _fields(properties: Schema, required: object, descriptions: Mapping[str, str]) -> Iterator[str]:
    yield from ("| field | type | default | |", "|---|---|---|---|")
    for name, schema in properties.items():
        is_required = isinstance(required, list | tuple) and name in required
        default = "required" if is_required else _default(schema)
        notes = [schema.get("description", ""), descriptions.get(name, "")]
        text = "; ".join(note for note in notes if note).replace("\n", " ").replace("|", r"\|")
        yield f"| `{name}` | {_kind(schema)} | {default} | {text} |"
    yield ""


def _default(schema: Schema) -> str:
    value = schema.get("default")
    if value is None:
        return ""
    literal = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
    return f"`{literal}`" if not isinstance(value, str) else f'`"{value}"`'


def _name(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _kind(schema: Schema) -> str:
    """A type in words."""
    if "$ref" in schema:
        name = "Problem" if _name(schema) == "ProblemBody" else _name(schema)
        return f"`{name}`" if name.endswith("Request") else f"[{name}](#{name.lower()})"
    if "oneOf" in schema:
        return "[constraint](#constraint)"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(option) for option in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f'`"{value}"`' for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array" and "prefixItems" not in schema:
        return f"array of {_kind(schema.get('items', {}))}"
    bounds = [f"{sign} {schema[key]:g}" for key, sign in _BOUNDS.items() if key in schema and schema[key] < _BEYOND]
    return ", ".join([kind, *bounds])
