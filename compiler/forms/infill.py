r"""Templates and choices as patterns: literal text with gaps, and one of several texts.

The gaps, as Python's `re` would write them:

    word      \w+(?:['’-]\w+)*
    ngram     WORD(?:[,;:]? WORD){0,7}
    sentence  ["'“‘(]?\w(?:[^.!?\n]*[^\s.!?])?[.!?]["'”’)]?

where WORD is the pattern of `word`, and `\n` stands for every character that ends a line (those of `str.splitlines`).
Eight words are the longest n-gram that the data of the paper's infilling task masks (Donahue et al., 2020), and its
n-grams run across commas. Owns the syntax of templates; knows nothing of automata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from compiler.automata import category, charset, charset_complement, charset_union, literal, single
from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.regex import (
    ESCAPED,
    WHOLE,
    Chars,
    Node,
    Repeat,
    concat,
    has_anchor,
    literal_node,
    parse_pattern,
    words_node,
)

NGRAM_WORDS_MAX = 8
_OWN = "infill:"
_OPEN, _CLOSE = "<|", "|>"
_NAMED = re.compile(r"<\|([^|<>\n]+)\|>")
_LINE_ENDS = charset((ord(char), ord(char) + 1) for char in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def _one_of(characters: str) -> Node:
    return Chars(charset((ord(char), ord(char) + 1) for char in characters))


def _optional(node: Node) -> Node:
    return Repeat(node, 0, 1)


def _word() -> Node:
    run = Repeat(Chars(category(r"\w")), 1, None)
    return concat([run, Repeat(concat([_one_of("'’-"), run]), 0, None)])


def _ngram() -> Node:
    another = concat([_optional(_one_of(",;:")), Chars(single(ord(" "))), _word()])
    return concat([_word(), Repeat(another, 0, NGRAM_WORDS_MAX - 1)])


def _sentence() -> Node:
    ends = charset((ord(char), ord(char) + 1) for char in ".!?")
    inside = Chars(charset_complement(charset_union(ends, _LINE_ENDS)))
    last = Chars(charset_complement(charset_union(ends, category(r"\s"))))
    body = concat([Chars(category(r"\w")), _optional(concat([Repeat(inside, 0, None), last]))])
    return concat([_optional(_one_of("\"'“‘(")), body, Chars(ends), _optional(_one_of("\"'”’)"))])


_GAPS = {"infill_word": _word, "infill_ngram": _ngram, "infill_sentence": _sentence}
_KNOWN = ", ".join([*(f"<|{name}|>" for name in _GAPS), "<|infill:REGEX|>"])


def infill_node(template: str, guard: ResourceGuard) -> Node:
    r"""The pattern of a template: its text as it stands, each gap replaced by what may fill it.

    `<|infill:REGEX|>` ends at the first `|>` outside the groups and classes of its regex; `\|>` and `(?:a|>b)` do not
    end it. Text that looks like a gap is written as one: `<|infill:<\|x\|>|>`. A lone `<|` is text.

    Raises SpecSyntaxError (field "infill", with the offset in the template) for an unknown gap, one that does not end
    and a faulty regex; SpecUnsupported for what `parse_pattern` refuses and for anchors in a gap; LimitExceeded over
    `template_chars_max`.
    """
    guard.check("template_chars_max", len(template))
    return concat([node for _, node in _pieces(template, guard)])


def _pieces(template: str, guard: ResourceGuard) -> Iterator[tuple[int, Node]]:
    """The pieces of a template in order: the offset of each and its pattern."""
    written = 0  # up to here it has been turned into nodes
    position = template.find(_OPEN)
    while position >= 0:
        guard.check_time()
        own = template.startswith(_OPEN + _OWN, position)
        named = _NAMED.match(template, position)
        if own or named:
            yield written, literal_node(template[written:position], ignore_case=False)
            if own:
                written, node = _own_gap(template, position, guard)
            else:
                assert named is not None
                written, node = named.end(), _named_gap(named)
            yield position, node
        position = template.find(_OPEN, max(written, position + 1))
    yield written, literal_node(template[written:], ignore_case=False)


def _named_gap(found: re.Match[str]) -> Node:
    name = found[1]
    if name in _GAPS:
        return _GAPS[name]()
    raise SpecSyntaxError(
        f"no gap has this name; the gaps are {_KNOWN} (write text of this shape as <|infill:<\\|...\\|>|>)",
        source=found.string,
        position=found.start(),
        expected=_KNOWN,
        field="infill",
    )


def _own_gap(template: str, position: int, guard: ResourceGuard) -> tuple[int, Node]:
    """Where the gap that opens at `position` ends, and its pattern."""
    begin = position + len(_OPEN + _OWN)
    end = _end_of_regex(template, begin)
    if end is None:
        raise SpecSyntaxError(
            "the gap does not end: |> inside a group or a class of its regex, or after a backslash, does not end it",
            source=template,
            position=position,
            expected="|> after the regex, with its brackets closed",
            field="infill",
        )
    try:
        node = parse_pattern(template[begin:end], guard)
    except SpecSyntaxError as error:
        where = begin + (error.position or 0)
        raise SpecSyntaxError(
            error.message, source=template, position=where, expected=error.expected, field="infill"
        ) from None
    except SpecUnsupported as error:
        where = begin + (error.position or 0)
        raise SpecUnsupported(str(error), construct=error.construct, position=where, field="infill") from None
    if has_anchor(node):
        raise SpecUnsupported(
            "a gap's regex holds an anchor, which has no meaning inside a text",
            construct="anchor in a gap",
            position=begin,
            field="infill",
        )
    return end + len(_CLOSE), node


_STEP = re.compile(rf"{ESCAPED}|{WHOLE}|[()]|\|>", re.DOTALL)


def _end_of_regex(template: str, begin: int) -> int | None:
    """The offset of the `|>` that ends a gap's regex, None where there is none.

    Escapes, comments and classes are stepped over whole; a `|>` inside a group is an alternative.
    """
    depth = 0
    for step in _STEP.finditer(template, begin):
        if step[0] == "(":
            depth += 1
        elif step[0] == ")":
            depth = max(depth - 1, 0)
        elif step[0] == _CLOSE and depth == 0:
            return step.start()
    return None


def choice_node(choices: Sequence[str], guard: ResourceGuard) -> Node:
    """Any one of the texts, given in any order and more than once or not. Common beginnings are shared.

    No choices match nothing at all. Raises LimitExceeded over `nfa_positions_max` while it grows.
    """
    return words_node(([literal(ord(char)) for char in text] for text in choices), guard)
