"""Writes the page of settings: `python -m docs.tools.settings_page` makes docs/settings.md.

Meanings come from the docstrings of Settings and Limits, defaults from their fields, units from the names.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator

from app.settings import BUILT_IN_MODEL, FROM_FILES, PREFIX, Settings
from compiler.limits import Limits
from docs.tools.pages import DOCS

PAGE = DOCS / "settings.md"
HEAD = """# Settings

<!-- made by python -m docs.tools.settings_page from app/settings.py and compiler/limits.py -->

Settings are environment variables. A process reads and checks them once at its start; an error
names the variable. Lists are separated by commas. An error of a request names its limit, such as
`beams_max`, which `ABS_BEAMS_MAX` sets.

{files} may also come from a file:
{example} names the file.
"""
UNITS = {  # unit by the ending of a name without _max, _min or _default, the longest first
    "beam_tokens_per_minute": "beams × tokens / min", "requests_per_minute": "requests / min", "_bytes": "bytes",
    "_chars": "characters", "_s": "seconds",
}  # fmt: skip
SECRETS = {"secret": "random for each process"}
_GROUP = re.compile(r"^(?P<title>[A-Z][^:]*):$")
_FIELD = re.compile(r"^  (?P<name>[a-z][a-z0-9_]*) {2,}(?P<text>\S.*)$")
_MORE = re.compile(r"^ {8,}(?P<text>\S.*)$")


def meanings(kind: type) -> dict[str, dict[str, str]]:
    """The meaning of each field by the headings of the docstring's groups."""
    groups: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(kind.__doc__ or "").splitlines():
        if group := _GROUP.match(line):
            rows = groups.setdefault(group["title"], {})
        elif field := _FIELD.match(line):
            name = field["name"]
            rows[name] = field["text"]
        elif continuation := _MORE.match(line):
            rows[name] += f" {continuation['text']}"
    return groups


def page() -> str:
    """The whole page. Raises ValueError if fields and meanings differ."""
    names = [f"`{PREFIX}{name.upper()}`" for name in FROM_FILES]
    files = f"{', '.join(names[:-1])} and {names[-1]}"
    parts = [HEAD.format(files=files, example=f"`{PREFIX}SECRET_FILE`")]
    for settings_object in (Settings(secret=bytes(32)), Limits()):
        parts += _sections(settings_object)
    return "\n".join(parts)


def _sections(settings_object: Settings | Limits) -> Iterator[str]:
    groups = meanings(type(settings_object))
    fields = {field.name for field in dataclasses.fields(settings_object)} - {"limits"}
    described = {name for rows in groups.values() for name in rows}
    if described != fields:
        raise ValueError(f"{type(settings_object).__name__} and its docstring differ in {sorted(described ^ fields)}")
    for title, rows in groups.items():
        yield f"## {title}\n\n| variable | default | unit | meaning |\n|---|---|---|---|"
        for name, text in rows.items():
            value = getattr(settings_object, name)
            yield f"| `{PREFIX}{name.upper()}` | {_default(name, value)} | {_unit(name, value)} | {text} |"
        yield ""


def _default(name: str, value: object) -> str:
    if name in SECRETS:
        return SECRETS[name]
    if value == BUILT_IN_MODEL:
        return "the built-in model"
    match value:
        case bool():
            return f"`{'yes' if value else 'no'}`"
        case tuple():
            return f"`{','.join(value)}`" if value else ""
        case int() if name.endswith("_bytes_max") and value >= 2**10:
            return f"`{value}` ({_binary(value)})"
        case int() | float():
            return f"`{value:.12g}`"
        case _:
            return f"`{value}`" if value else ""


def _binary(value: int) -> str:
    power = max(power for power in (1, 2, 3) if value >= 2 ** (10 * power))
    return f"{value / 2 ** (10 * power):g} {'KMG'[power - 1]}iB"


def _unit(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes or no"
    stem = re.sub(r"_(max|min|default)$", "", name)
    counted = "count" if isinstance(value, int) and not stem.endswith("port") else ""
    return next((unit for ending, unit in UNITS.items() if stem.endswith(ending)), counted)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
