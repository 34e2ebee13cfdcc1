"""Writes the page of settings: `python -m docs.tools.settings_page` makes docs/settings.md.

Meanings and defaults come from the fields of Settings and Limits, units from the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.settings import BUILT_IN_MODEL, DEFINITIONS, FROM_FILES, PREFIX, Settings
from docs.tools.pages import DOCS

PAGE = DOCS / "settings.md"
HEAD = """# Settings

<!-- made by python -m docs.tools.settings_page from app/settings.py and compiler/limits.py -->

Settings are environment variables. A process reads and checks them once at its start; an error
has a line for each variable at fault. Lists are separated by commas. An error of a request names
its limit, such as `beams_max`, which `ABS_BEAMS_MAX` sets.

{files} may also come from a file:
{example} names the file.
"""
UNITS = {  # unit by the ending of a name without _max, _min or _default, the longest first
    "beam_tokens_per_minute": "beams × tokens / min", "requests_per_minute": "requests / min", "_bytes": "bytes",
    "_chars": "characters", "_s": "seconds",
}  # fmt: skip
SECRETS = {"secret": "random for each process"}


def page() -> str:
    """The whole page."""
    names = [f"`{PREFIX}{name.upper()}`" for name in FROM_FILES]
    files = f"{', '.join(names[:-1])} and {names[-1]}"
    return "\n".join([HEAD.format(files=files, example=f"`{PREFIX}SECRET_FILE`"), *_sections()])


def _sections() -> Iterator[str]:
    for group, fields in DEFINITIONS.items():
        title = (type(getattr(Settings(), group)).__doc__ or "").removesuffix(".")
        yield f"## {title}\n\n| variable | default | unit | meaning |\n|---|---|---|---|"
        for name, (_, field) in fields.items():
            unit = _unit(name, field.default)
            yield f"| `{PREFIX}{name.upper()}` | {_default(name, field.default)} | {unit} | {field.description} |"
        yield ""


def _default(name: str, value: object) -> str:
    if name in SECRETS:
        return SECRETS[name]
    if value == (BUILT_IN_MODEL,):
        return "`captions`"
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
