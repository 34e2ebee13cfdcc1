"""The tokens of a formula's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.ltlf.dialects import OPERATOR_WORD, character_hint
from compiler.ltlf.syntax import CONSTANTS, Op

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<symbol><-->|<->|<=>|-->|->|=>|&&|\|\||/\\|\\/|\[\s*\]|<\s*>|[&|!~∧∨→⇒⟹↔⇔⟺≡¬○◯●◇◊□◻⊤⊥()])
      | "(?P<quoted>(?:[^"\\]|\\["\\])*)" | '(?P<single>(?:[^'\\]|\\['\\])*)' | (?P<word>[^\W\d]\w*)""",
    re.VERBOSE,
)
_SPELLINGS = {
    Op.IFF: ("<->", "<=>", "<-->", "↔", "⇔", "⟺", "≡"), Op.IMPLIES: ("->", "=>", "-->", "→", "⇒", "⟹"),
    Op.AND: ("&", "&&", "∧", "/\\"), Op.OR: ("|", "||", "∨", "\\/"), Op.NOT: ("!", "~", "¬"), Op.NEXT: ("○", "◯"),
    Op.WEAK_NEXT: "●", Op.FINALLY: ("◇", "◊", "<>"), Op.GLOBALLY: ("□", "◻", "[]"), Op.TRUE: "⊤", Op.FALSE: "⊥",
}  # fmt: skip
_SYMBOLS = {spelling: op for op, spellings in _SPELLINGS.items() for spelling in spellings}
_OPERATOR_LETTERS = re.compile(r"WX|[XFGURWMYOHS]")
_STRONG = re.compile(r"\[\s*!\s*\]")
AtomReader: TypeAlias = Callable[[str, int], tuple[str, int] | None]
"""Reads what stands for a proposition at a position of the source: its name and its end, None if there is none."""
OPERAND = "a formula: a name, an operator such as F or !, or '('"


class Token(NamedTuple):
    """A token: `text` is "(", ")" or "" (the end) where `op` is None, a name where it is NAME, else as written.

    bare    whether a name stands without quotes
    strong  whether a next is written X[!]
    """

    op: Op | None
    position: int
    text: str
    bare: bool = True
    strong: bool = False


def fault(
    message: str, source: str, position: int, expected: str, *, replacement: tuple[int, int, str] | None = None
) -> SpecSyntaxError:
    """The error of a formula. `replacement` is as in SpecSyntaxError."""
    joint = " Expected" if message.endswith("?") else "; expected"
    return SpecSyntaxError(
        f"{message}{joint} {expected}", source=source, position=position, expected=expected, field="ltlf",
        replacement=replacement,
    )  # fmt: skip


def unsupported(message: str, construct: str, position: int | None) -> SpecUnsupported:
    """The error of an operator that is understood and refused."""
    return SpecUnsupported(message, construct=construct, position=position, field="ltlf")


def formula_tokens(source: str, atoms: AtomReader | None) -> Iterator[Token]:
    """The tokens of the source, closed by one with an empty text."""
    position, held = 0, list[Token]()
    while position < len(source):
        if atoms and (atom := atoms(source, position)):
            yield from held
            name, position_after = atom
            held = [Token(Op.NAME, position, name, bare=False)]
            position = position_after
            continue
        # X[!] is the strong next of tools whose X is weak.
        if held and held[0].op is Op.NEXT and held[0].text == "X" and (strong := _STRONG.match(source, position)):
            held = [held[0]._replace(strong=True)]
            position = strong.end()
            continue
        match = _TOKEN.match(source, position)
        if match is None:
            raise _no_token(source, position)
        read = list(_read(match, source))
        yield from held
        yield from read[:-1]
        held = read[-1:]  # a mark may follow the last one
        position = match.end()
    yield from held
    yield Token(None, len(source), "")


def _read(match: re.Match[str], source: str) -> Iterator[Token]:
    """The tokens of one match. White space has none, a run of operators several."""
    text, position = match[0], match.start()
    match match.lastgroup:
        case "symbol":
            yield Token(_SYMBOLS.get("".join(text.split())), position, text)
        case "quoted" | "single" as kind:
            name = re.sub(r"\\(.)", r"\1", match[kind])
            if not name:
                raise fault("a quoted name is empty", source, position, "a name with at least one character")
            yield Token(Op.NAME, position, name, bare=False)
        case "word":
            yield from _word(text, position)


def _word(text: str, position: int) -> Iterator[Token]:
    """A bare word: a constant, a run of operators, or a name."""
    # TRUE and True are constants too, so that they are not taken for propositions by mistake.
    if text.lower() in CONSTANTS:
        yield Token(CONSTANTS[text.lower()], position, text)
    # A word of operator letters alone is read as these operators: GF, XX.
    elif OPERATOR_WORD.fullmatch(text):
        for letters in _OPERATOR_LETTERS.finditer(text):
            yield Token(Op(letters[0]), position + letters.start(), letters[0])
    else:
        yield Token(Op.NAME, position, text)


def _no_token(source: str, position: int) -> Exception:
    """What is wrong where no token starts. Never quotes the source: messages go out in answers and logs."""
    character = source[position]
    bracketed = re.compile(r"((?:WX|[XFGURWM]))\[(\s*!\s*\])?").search(source, max(position - 2, 0), position + 40)
    if character == "[" and bracketed and bracketed.end(1) == position:
        construct = f"{bracketed[1]}[!]" if bracketed[2] else f"{bracketed[1]}[...]"
        advice = "write X for the strong next, WX for the weak one" if bracketed[2] else "spell the bound out with X"
        return unsupported(f"{construct} is not supported: {advice}", construct, position)
    if character in "\"'":
        expected = f"a closing {character} (write \\ before one inside)"
        return fault("the quoted name does not end", source, position, expected)
    if character.isdigit():
        digits = re.compile(r"\w+").match(source, position)
        constant = {"1": "true", "0": "false"}.get(digits[0] if digits else "")
        hint = f": the constant is written {constant}" if constant else ""
        replacement = (position, position + 1, constant) if constant else None
        message = f"a name cannot begin with a digit{hint}"
        return fault(message, source, position, f"{OPERAND} (or quote the name)", replacement=replacement)
    code, hint = f"U+{ord(character):04X}", character_hint(character)
    message = f"the character {code} has no meaning here{': ' if hint else ''}{hint}"
    return fault(message, source, position, "a token (or quote the name)")
