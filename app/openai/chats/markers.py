"""Keeps text of callers apart from markers of a chat template.

A marker is a token such as `<|im_end|>` that structures a prompt. In text of callers, the characters with which markers
begin or end are replaced by stand-ins while the template is rendered. So no marker that is found in the rendered text
begins or ends in text of callers. Where they stand is part of the prompt, and everything else is encoded as plain text.

A template that writes a word of the caller between its own `<|` and `|>` makes a marker of it. Templates do so with
roles, which callers cannot choose freely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.errors import InvalidRequest

# Letters of a rare script: no filter of a template changes them, and they are printed as they are.
_STAND_INS = range(0x20000, 0x2A6D0)
_JSON = frozenset('"\\')  # filters escape these, so that a stand-in would make other JSON
_TOO_MANY = "contain all rare characters, of which some must mark the text"
_ESCAPED = "the model's chat template escapes characters, so that messages must not contain "


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt made by a chat template. `markers` has the start and the end of each marker in the text."""

    text: str
    markers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WrittenCalls:
    """Calls of a caller as the model writes them.

    pieces  text of the caller and markup in turn
    """

    pieces: tuple[str, ...]


class CallerText:
    """Marks the text of a caller while a template is rendered.

    names   the markers of the vocabulary
    values  all that the caller sent; fixed texts beside it are those of the template
    Raises InvalidRequest if no character is left for a stand-in.

    >>> text = CallerText(("<s>", "</s>"), ["a</s>"], "<s>")
    >>> text.uncovered("<s>" + text.covered("a</s>") + "</s>")
    RenderedPrompt(text='<s>a</s></s>', markers=((0, 3), (8, 12)))
    """

    def __init__(self, names: Iterable[str], values: object, fixed: str) -> None:
        ends = {name: {end for end in (name[0], name[-1]) if _is_replaceable(end)} for name in names}
        # A name between letters would be found in any text, so it is plain text everywhere.
        found = sorted((re.escape(name) for name, replaced in ends.items() if replaced), key=len, reverse=True)
        self._markers = re.compile("|".join(found)) if found else None
        characters = sorted(set().union(*ends.values()))
        used = set(fixed).union(*_strings(values))
        free = (chr(code) for code in _STAND_INS if chr(code) not in used)
        try:
            self._stand_ins = {character: next(free) for character in characters}
        except StopIteration:
            raise InvalidRequest((("messages", _TOO_MANY),)) from None
        self._cover = str.maketrans(self._stand_ins)
        self._uncover = str.maketrans({stand_in: character for character, stand_in in self._stand_ins.items()})

    def covered(self, value: Any) -> Any:
        """A value with stand-ins for the ends of markers, in keys too."""
        if isinstance(value, str):
            return value.translate(self._cover)
        if isinstance(value, WrittenCalls):
            return "".join(piece if at % 2 else self.covered(piece) for at, piece in enumerate(value.pieces))
        if isinstance(value, Mapping):
            return {self.covered(name): self.covered(item) for name, item in value.items()}
        return [self.covered(item) for item in value] if isinstance(value, list | tuple) else value

    def is_in(self, text: str) -> bool:
        """Whether text of the caller with a stand-in is in a text."""
        return any(stand_in in text for stand_in in self._stand_ins.values())

    def uncovered(self, rendered: str) -> RenderedPrompt:
        """The prompt of a rendered text. Raises InvalidRequest if a stand-in was altered."""
        for character, stand_in in self._stand_ins.items():
            if json.dumps(stand_in)[1:-1] in rendered:
                raise InvalidRequest((("messages", f"{_ESCAPED}{character}"),))
        found = () if self._markers is None else tuple(match.span() for match in self._markers.finditer(rendered))
        return RenderedPrompt(rendered.translate(self._uncover), found)


def _is_replaceable(character: str) -> bool:
    return not (character.isalnum() or character.isspace() or character in _JSON)


def _strings(value: object) -> Iterator[str]:
    """The strings in a value, with the keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, WrittenCalls):
        yield from value.pieces
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from (name, *_strings(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
