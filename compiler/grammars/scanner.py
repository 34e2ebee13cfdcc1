"""Reads a text from left to right; errors name their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from compiler.automata import CODE_POINTS
from compiler.errors import SpecSyntaxError, SpecUnsupported

_HEX = re.compile("[0-9A-Fa-f]+")


@dataclass(frozen=True, slots=True)
class Escapes:
    r"""What may follow a backslash.

    characters  by the letter behind the backslash
    hex_digits  by letter, the number of hexadecimal digits behind it; 0 for any number
    shown       all of them, for errors
    """

    characters: Mapping[str, str]
    hex_digits: Mapping[str, int]
    shown: str


class Scanner:
    """A text and the place `at` which it is read."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what the pattern matches here, if it does."""
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def sees(self, text: str) -> bool:
        """Whether the text is here."""
        return self.text.startswith(text, self.at)

    def takes(self, text: str) -> bool:
        """Read the text if it is here."""
        seen = self.sees(text)
        self.at += len(text) if seen else 0
        return seen

    def character(self, escapes: Escapes, inside: str, closing: str) -> str:
        """One character of a literal or class, which may be escaped."""
        if self.ended:
            self.fail(f"{inside} is not closed", closing)
        char = self.text[self.at]
        self.at += 1
        return char if char != "\\" else self._escaped(escapes, self.at - 1)

    def _escaped(self, escapes: Escapes, place: int) -> str:
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter and letter in escapes.characters:
            return escapes.characters[letter]
        if letter in escapes.hex_digits and letter:
            count = escapes.hex_digits[letter]
            found = _HEX.match(self.text, self.at, self.at + count if count else len(self.text))
            if found and (not count or len(found[0]) == count) and int(found[0], 16) < CODE_POINTS:
                self.at = found.end()
                return chr(int(found[0], 16))
        self.fail("an unknown escape", escapes.shown, place)

    def fail(self, message: str, expected: str, place: int | None = None) -> NoReturn:
        """Raise SpecSyntaxError for this place, or another one."""
        position = self.at if place is None else place
        raise SpecSyntaxError(message, source=self.text, position=position, expected=expected)

    def refuse(self, construct: str, message: str, place: int | None = None) -> NoReturn:
        """Raise SpecUnsupported for this place, or another one."""
        position = self.at if place is None else place
        raise SpecUnsupported(message, construct=construct, position=position, source=self.text)
