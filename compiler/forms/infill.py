r"""Patterns of templates with gaps and of choices between texts.

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
from collections.abc import Iterator

from compiler.automata import category, charset, charset_complement, charset_union, single
from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.regex import (
    COMMENT_OR_CLASS,
    ESCAPE,
    Chars,
    Node,
    Repeat,
    concat,
    has_anchor,
    literal_node,
    parse_pattern,
)

NGRAM_WORDS_MAX = 8
_REGEX_PREFIX = "infill:"
_OPEN, _CLOSE = "<|", "|>"
# Anything of the shape `<|name|>` is a gap, so that a misspelled name is refused.
_NAMED_GAP = re.compile(r"<\|([^|<>\n]+)\|>")
# The characters at which `str.splitlines` ends a line.
_LINE_ENDS = charset((ord(char), ord(char) + 1) for char in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def _any_of(characters: str) -> Node:
    return Chars(charset((ord(char), ord(char) + 1) for char in characters))


def _optional(node: Node) -> Node:
    return Repeat(node, 0, 1)


def _word() -> Node:
    # The three patterns of the module's docstring, as trees.
    run = Repeat(Chars(category(r"\w")), 1, None)
    return concat([run, Repeat(concat([_any_of("'’-"), run]), 0, None)])


def _ngram() -> Node:
    another = concat([_optional(_any_of(",;:")), Chars(single(ord(" "))), _word()])
    return concat([_word(), Repeat(another, 0, NGRAM_WORDS_MAX - 1)])


def _sentence() -> Node:
    ends = charset((ord(char), ord(char) + 1) for char in ".!?")
    inside = Chars(charset_complement(charset_union(ends, _LINE_ENDS)))
    # The last character inside is neither a mark nor white space.
    last = Chars(charset_complement(charset_union(ends, category(r"\s"))))
    body = concat([Chars(category(r"\w")), _optional(concat([Repeat(inside, 0, None), last]))])
    return concat([_optional(_any_of("\"'“‘(")), body, Chars(ends), _optional(_any_of("\"'”’)"))])


_GAPS = {"infill_word": _word, "infill_ngram": _ngram, "infill_sentence": _sentence}
_GAP_NAMES = ", ".join([*(f"<|{name}|>" for name in _GAPS), "<|infill:REGEX|>"])


def infill_node(template: str, guard: ResourceGuard) -> Node:
    r"""The pattern of a template. It consists of literal text and, for each gap, the pattern that fills it.

    `<|infill:REGEX|>` ends at the first `|>` outside the groups and classes of its regex; `\|>` and `(?:a|>b)` do not
    end it. Text that looks like a gap is written as one: `<|infill:<\|x\|>|>`. A lone `<|` is text.

    Raises SpecSyntaxError (field "infill", with the offset in the template) for an unknown gap, one that does not end
    and a faulty regex; SpecUnsupported for what `parse_pattern` refuses and for anchors in a gap; LimitExceeded over
    `template_chars_max`.
    """
    guard.check("template_chars_max", len(template))
    return concat(list(_pieces(template, guard)))


def _pieces(template: str, guard: ResourceGuard) -> Iterator[Node]:
    """The patterns of a template's pieces, in order: literal texts and gaps."""
    done = 0  # the offset up to which the template has been turned into patterns
    position = template.find(_OPEN)
    while position >= 0:
        guard.check_time()
        has_regex = template.startswith(_OPEN + _REGEX_PREFIX, position)
        # A `<|` that opens neither kind of gap is literal text.
        named_gap = _NAMED_GAP.match(template, position)
        if has_regex or named_gap:
            yield literal_node(template[done:position], ignore_case=False)
            if has_regex:
                done, node = _regex_gap(template, position, guard)
            else:
                assert named_gap is not None
                done, node = named_gap.end(), _named_gap(named_gap)
            yield node
        # The search goes on behind the gap: a `<|` inside its regex opens nothing.
        position = template.find(_OPEN, max(done, position + 1))
    yield literal_node(template[done:], ignore_case=False)


def _named_gap(gap: re.Match[str]) -> Node:
    name = gap[1]
    if name in _GAPS:
        return _GAPS[name]()
    raise SpecSyntaxError(
        f"no gap has this name; the gaps are {_GAP_NAMES} (write text of this shape as <|infill:<\\|...\\|>|>)",
        source=gap.string,
        position=gap.start(),
        expected=_GAP_NAMES,
        field="infill",
    )


def _regex_gap(template: str, position: int, guard: ResourceGuard) -> tuple[int, Node]:
    """Where the gap that opens at `position` ends, and its pattern."""
    begin = position + len(_OPEN + _REGEX_PREFIX)
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
    # Offsets are those of the template, not of the regex.
    except SpecSyntaxError as error:
        where = begin + (error.position or 0)
        raise SpecSyntaxError(
            error.message, source=template, position=where, expected=error.expected, field="infill"
        ) from None
    except SpecUnsupported as error:
        error.position, error.field = begin + (error.position or 0), "infill"
        raise
    # Anchors speak of the ends of the text, which a gap does not know.
    if has_anchor(node):
        raise SpecUnsupported(
            "a gap's regex holds an anchor, which has no meaning inside a text",
            construct="anchor in a gap",
            position=begin,
            field="infill",
        )
    return end + len(_CLOSE), node


# The parts of a regex that may contain `|>` without ending the gap, and what opens, closes and ends.
_REGEX_TOKEN = re.compile(rf"{ESCAPE}|{COMMENT_OR_CLASS}|[()]|\|>", re.DOTALL)


def _end_of_regex(template: str, begin: int) -> int | None:
    """The offset of the `|>` that ends a gap's regex. None where there is none.

    Escapes, comments and classes are skipped; a `|>` inside a group is an alternative.
    """
    depth = 0
    for token in _REGEX_TOKEN.finditer(template, begin):
        # An unbalanced `)` is left to the regex parser, which names it.
        if token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth = max(depth - 1, 0)
        elif token[0] == _CLOSE and depth == 0:
            return token.start()
    return None
