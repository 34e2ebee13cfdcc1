"""Near misses of fields, values and paths, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from compiler.errors import Edit, nearest
from compiler.spec import FORM_FIELDS, OPTION_FIELDS, moved, normalized, not_an_object

# Names that other servers and libraries have for fields of ours.
_FIELDS = {
    "max_new_tokens": "max_tokens", "max_output_tokens": "max_tokens", "max_completion_tokens": "max_tokens",
    "max_length": "max_tokens", "num_predict": "max_tokens", "n_predict": "max_tokens", "tokens": "max_tokens",
    "max_tokens_to_sample": "max_tokens", "budget": "max_tokens", "num_beams": "beams", "beam_width": "beams",
    "beam_size": "beams", "num_return_sequences": "n", "best_of": "n", "num_samples": "n", "temp": "temperature",
    "input": "prompt", "inputs": "prompt", "query": "prompt", "text": "prompt", "timeout": "timeout_s",
    "model_id": "model", "model_name": "model", "engine": "model", "constraints": "constraint", "rule": "constraint",
    "hash": "automaton", "streaming": "stream", "mode": "algorithm", "decoding": "algorithm", "method": "algorithm",
}  # fmt: skip
_PREFIXES = ("/v1", "/api", "/api/v1")


class NotAnObject(ValueError):
    """A constraint is no JSON object. `suggestion` are the edits that were probably meant."""

    def __init__(self, message: str, suggestion: list[Edit]) -> None:
        super().__init__(message)
        self.suggestion = suggestion


def checked_object(value: object) -> object:
    """The value of a field `constraint`. Raises NotAnObject."""
    if isinstance(value, dict) or value is None:
        return value
    fault = not_an_object(value)
    edits = [moved(edit, "#/constraint") for edit in fault.suggestion]
    raise NotAnObject(fault.message, edits)


def unknown_field(name: str, value: object, known: Collection[str]) -> tuple[str, tuple[Edit, ...]]:
    """The message for an unknown field, and the edits of a correction.

    known  the fields that the body has
    """
    if name in FORM_FIELDS | OPTION_FIELDS and "constraint" in known:
        return "unknown field: it stands in constraint", _into_constraint(name)
    alias = normalized(name)
    target = _FIELDS.get(alias, alias)
    if target not in known:
        target = nearest(alias, known, 0.75) or ""
    if not target:
        return "unknown field: leave it out", ()
    return f"unknown field; did you mean {target}?", ({"op": "move", "from": f"#/{name}", "path": f"#/{target}"},)


def _into_constraint(name: str) -> tuple[Edit, ...]:
    return ({"op": "move", "from": f"#/{name}", "path": f"#/constraint/{name}"},)


def with_constraint(edits: list[Edit], body: object) -> list[Edit]:
    """The edits of all faults of a body. Where fields move into a constraint that the body lacks, it is added first."""
    moves = [edit for edit in edits if edit["op"] == "move"]
    into = any(edit in _into_constraint(str(edit["from"])[2:]) for edit in moves)
    lacks = isinstance(body, dict) and not isinstance(body.get("constraint"), dict)
    return [{"op": "add", "path": "#/constraint", "value": {}}, *edits] if into and lacks else edits


def path_hint(path: str, templates: Iterable[str]) -> str:
    """The end of a message for a path that does not exist. It is empty where no path is similar."""
    paths = sorted({template for template in templates if "{" not in template})
    bare = path.rstrip("/").lower()
    for candidate in (bare, *(bare.removeprefix(prefix) for prefix in _PREFIXES), f"/v1{bare}"):
        if candidate in paths:
            return f"; did you mean {candidate}?"
    similar = nearest(bare, paths, 0.7)
    return f"; did you mean {similar}?" if similar else f"; the paths for text are {_shown(paths)}"


def _shown(paths: Collection[str]) -> str:
    shown = ("/generate", "/compile", "/check", "/v1/completions", "/v1/chat/completions")
    return ", ".join(path for path in shown if path in paths)


def json_hint(text: str, position: int) -> str:
    """What to write where a text is no JSON; ends a message."""
    here, before = text[position : position + 1], text[:position].rstrip()[-1:]
    if not text.strip():
        return ": it is empty"
    if here == "'":
        return ": write double quotes; Python's json.dumps does"
    if here in ("}", "]") and before == ",":
        return ": leave out the comma before it"
    if re.match("True|False|None", text[position:]):
        return ": write true, false or null; Python's json.dumps does"
    if here == "/" or here == "#":
        return ": leave comments out"
    return ": write it as a JSON library does" if here else ": a closing quote or bracket is missing at the end"
