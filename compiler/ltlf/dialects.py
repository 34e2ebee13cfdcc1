"""Operators of other tools' formulas, and what to write in their place.

Symbols with one meaning are read by `tokens`. A word is refused where it is an operator elsewhere: it would be a
proposition here, of a meaning that its author did not have in mind.
"""

from __future__ import annotations

import re

from compiler.ltlf.syntax import CONSTANTS

# Words before an operand. Spelled-out ones are those of Spot, NuSMV, TLA+ and pyModelChecking.
PREFIX_WORDS = {
    "f": "F", "finally": "F", "eventually": "F", "sometime": "F", "g": "G", "globally": "G", "always": "G",
    "x": "X", "next": "X", "wx": "WX", "wnext": "WX", "weak_next": "WX", "weaknext": "WX", "not": "!", "never": "G !",
    "y": "Y", "yesterday": "Y", "previous": "Y", "previously": "Y", "wy": "!Y !", "weak_yesterday": "!Y !",
    "weakyesterday": "!Y !", "o": "O", "once": "O", "h": "H", "historically": "H",
}  # fmt: skip
# Words between operands. Spin and ltl2ba write V for R.
INFIX_WORDS = {
    "and": "&", "or": "|", "implies": "->", "imp": "->", "iff": "<->", "equiv": "<->", "u": "U", "until": "U",
    "r": "R", "release": "R", "releases": "R", "v": "R", "w": "W", "unless": "W", "weak_until": "W", "m": "M",
    "strong_release": "M", "s": "S", "since": "S",
}  # fmt: skip
_XOR = "exclusive or is written !(a <-> b)"
_TRIGGER = "a trigger b is written !(!a S !b)"
# Words between operands that no operator replaces.
REWRITTEN_WORDS = {"xor": _XOR, "trigger": _TRIGGER, "triggers": _TRIGGER, "triggered": _TRIGGER}
# Letters that no operator replaces, or whose meaning differs between tools.
OTHER_OPERATORS = {
    "N": "write X for the strong next, WX for the weak one", "P": "write O for once, Y for the step before",
    "Z": "the weak yesterday is written !Y !a", "WY": "the weak yesterday is written !Y !a", "T": _TRIGGER,
}  # fmt: skip
# Constants of Lydia and of linear dynamic logic. Their words are rare, or stand in quotes.
OTHER_CONSTANTS = {"tt": "true", "ff": "false"}
# Steps that other tools name. In any case; in quotes they are words.
_FIRST = "!Y(true) holds at the first step"
STEP_WORDS = {
    "end": "last holds at the last step, eos at the one behind it", "start": _FIRST, "first": _FIRST,
}  # fmt: skip
_HINTS = {
    ",": "join formulas by & (both) or |; the mark itself has the name comma",
    ".": "the mark itself has the name dot", "?": "the mark itself has the name question",
    ":": "the mark itself has the name colon", ";": "the mark itself has the name semicolon",
    "-": 'a name with a hyphen stands in quotes: "well-known"', "=": "two formulas are equal by <->",
    "^": _XOR, "⊕": _XOR, "`": 'names stand in quotes: "hot dog"', "“": 'names stand in straight quotes: "hot dog"',
    **dict.fromkeys("*+[]{}\\$", "a pattern is a constraint of the form regex, or a proposition with one"),
    "@": "names stand in quotes", "#": "names stand in quotes", "%": "names stand in quotes",
}  # fmt: skip
_GLUED = re.compile(r"((?:WX|[XFGURWMYOHS])+)([^\W\d_A-Z]\w*)")
_LETTER = re.compile(r"\w\d*")
OPERATOR_WORD = re.compile(r"(?:WX|[XFGURWMYOHS])+")


def character_hint(character: str) -> str:
    """What to write in place of a character. It is empty where that is not known."""
    return _HINTS.get(character, "")


def glued_operators(name: str) -> int:
    """How many letters of a word may be operators before a name.

    >>> glued_operators("GFa"), glued_operators("Fdog"), glued_operators("dog")
    (2, 1, 0)
    """
    match = _GLUED.fullmatch(name)
    return match.end(1) if match else 0


def is_letter(name: str) -> bool:
    """Whether a name is one letter, perhaps with digits behind it."""
    return _LETTER.fullmatch(name) is not None


def must_be_quoted(name: str) -> bool:
    """Whether the parser would not read the bare name as this name."""
    glued = glued_operators(name)
    constant = name.lower() in CONSTANTS or name in OTHER_CONSTANTS or name.lower() in STEP_WORDS
    return (
        not re.fullmatch(r"[^\W\d]\w*", name) or constant or OPERATOR_WORD.fullmatch(name) is not None
        # Whether another name follows the letters depends on the formula.
        or glued > 0
    )
