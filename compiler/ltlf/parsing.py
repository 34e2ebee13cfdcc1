"""The concrete syntax of LTLf, from text to a formula. Knows nothing of traces or automata.

The syntax is LTLf2DFA's (X strong, WX weak next) and more: W and M, && and ||, symbols, upper-case and quoted names.
From loosest to tightest: -> and <->, |, &, U R W M S, then the prefix operators. U, R, W and M each read to the right;
other chains need brackets. A word made of operator letters alone (GF, XX, WX) is operators; quoted, a name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from compiler.errors import SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.ltlf.dialects import (
    INFIX_WORDS,
    OTHER_CONSTANTS,
    OTHER_OPERATORS,
    PREFIX_WORDS,
    REWRITTEN_WORDS,
    STEP_WORDS,
    glued_operators,
    is_letter,
)
from compiler.ltlf.syntax import BOOLEAN, LEAVES, PAST, PREFIX, UNTILS, Builder, LtlfFormula, Op
from compiler.ltlf.tokens import OPERAND, AtomReader, Token, fault, formula_tokens, unsupported

_LEVELS: tuple[tuple[Op, ...], ...] = ((Op.IFF, Op.IMPLIES), (Op.OR,), (Op.AND,), UNTILS)
_NEVER_CHAINED = frozenset({Op.IFF, Op.IMPLIES, Op.SINCE})
_WORD = re.compile(r"[^\W\d]\w*")
# What each operator of the past says at the first step, behind an example of it.
_AT_FIRST = {
    Op.YESTERDAY: ("Y a", "false"), Op.ONCE: ("O a", "a"), Op.HISTORICALLY: ("H a", "a"), Op.SINCE: ("(a S b)", "b"),
}  # fmt: skip
_INFIX = "an operator such as & or U, or the end"


@dataclass(slots=True)
class _Frame:
    """One open bracket, or the formula: operands, operators and waiting prefixes."""

    opened_at: int
    operands: list[int] = field(default_factory=list)
    operators: list[Token] = field(default_factory=list)
    prefixes: list[Token] = field(default_factory=list)


class _Parser:
    """Reads tokens with an explicit stack. `depth` counts open brackets and waiting prefix operators."""

    def __init__(self, source: str, guard: ResourceGuard, atoms: AtomReader | None) -> None:
        self.source, self.guard, self.atoms = source, guard, atoms
        self.builder = Builder()
        self.frames = [_Frame(0)]
        self.depth = 0
        self.names: set[str] = set()
        self.words: list[Token] = []  # bare names
        self.nexts: list[Token] = []
        # Nodes that look back from their own step, and the operators that do so. Built by index, as nodes are shared.
        self.looking_back: dict[int, Token] = {}
        self.looks_back_first: Token | None = None

    def parse(self) -> LtlfFormula:
        previous: Token | None = None  # None, or an operand's last token where an operator may follow
        for token in formula_tokens(self.source, self.atoms):
            if token.op is Op.NEXT and token.text == "X":
                self.nexts.append(token)
            complete = self._infix(token, previous) if previous else self._operand(token)
            previous = token if complete else None
        frame = self.frames[-1]
        if len(self.frames) > 1:
            line = self.source.count("\n", 0, frame.opened_at) + 1
            column = frame.opened_at - (self.source.rfind("\n", 0, frame.opened_at) + 1) + 1
            message = f"the bracket opened in line {line}, column {column} is not closed"
            raise fault(message, self.source, len(self.source), "')'")
        weak = [token for token in self.nexts if not token.strong]
        if weak and len(weak) < len(self.nexts):
            message = "beside X[!], other tools read X as the weak next, which is WX here: write X[!] or WX"
            raise fault(message, self.source, weak[0].position, "X[!] or WX")
        root = self._group(frame.operands, frame.operators, 0)
        self.looks_back_first = self.looking_back.get(root)
        return self.builder.formula(root)

    def _operand(self, token: Token) -> bool:
        """Read a token where a formula must start or go on. True when it completes an operand."""
        if token.op in PREFIX:
            self._deepen()
            self.frames[-1].prefixes.append(token)
            return False
        if token.text == "(" and token.op is None:
            self._deepen()
            self.frames.append(_Frame(token.position))
            return False
        if token.op not in LEAVES:
            raise self._no_operand(token)
        name = token.text if token.op is Op.NAME else ""
        if name:
            self.names.add(name)
            if token.bare:
                self.words.append(token)
            self.guard.check("propositions_max", len(self.names))
        self._complete(self.builder.add(token.op, (), name))
        return True

    def _no_operand(self, token: Token) -> Exception:
        if token.op is Op.WEAK_UNTIL and self.source.startswith("WY", token.position):
            return _other_operator("WY", token.position)
        message = f"'{token.text}' cannot start a formula" if token.text else "the formula ends too early"
        quote = "; a name made of operator letters alone must be quoted" if token.text.isalpha() else ""
        return fault(message, self.source, token.position, OPERAND + quote)

    def _infix(self, token: Token, previous: Token) -> bool:
        """Read a token after an operand. True when what is read so far is again an operand."""
        if token.op is not None and token.op not in LEAVES and token.op not in PREFIX:
            self.frames[-1].operators.append(token)
            return False
        if token.op is None and token.text == ")" and len(self.frames) > 1:
            frame = self.frames.pop()
            self.depth -= 1
            self._complete(self._group(frame.operands, frame.operators, 0))
            return True
        if token.op is None and not token.text:
            return True
        raise self._no_infix(token, previous)

    def _no_infix(self, token: Token, previous: Token) -> Exception:
        if token.text == ")" and token.op is None:
            return fault("')' closes no bracket", self.source, token.position, _INFIX)
        # A name beside an operand is an error; the names of other dialects' operators get a message of their own.
        for candidate in (previous, token):
            if candidate.op is Op.NAME and candidate.bare and candidate.text in OTHER_OPERATORS:
                return _other_operator(candidate.text, candidate.position)
        for candidate, words in ((previous, PREFIX_WORDS), (token, INFIX_WORDS)):
            # The whole word: OR is read as the operators O and R.
            match = _WORD.match(self.source, candidate.position)
            word = match[0].lower() if match and candidate.bare else ""
            if word in words and candidate.text != words[word]:
                message = f"{word} is no operator here; did you mean the operator {words[word]}?"
                replacement = (candidate.position, candidate.position + len(word), words[word])
                return fault(message, self.source, candidate.position, _INFIX, replacement=replacement)
            if word in REWRITTEN_WORDS:
                return fault(REWRITTEN_WORDS[word], self.source, candidate.position, _INFIX)
        hint = "join them by & (both) or | (one of them)"
        if token.op is Op.NAME and previous.op is Op.NAME:
            hint += ', and put a phrase in quotes: "hot dog"'
        return fault(f"two formulas stand side by side: {hint}", self.source, token.position, _INFIX)

    def check_words(self, known: Collection[str]) -> None:
        """Raise SpecSyntaxError for a bare word that other tools read otherwise."""
        names = {token.text for token in self.words} | set(known)
        for token in self.words:
            name, begin = token.text, token.position
            end = begin + len(name)
            if name in known:
                continue
            if name in OTHER_CONSTANTS:
                constant = OTHER_CONSTANTS[name]
                message = f"the constant is written {constant}; the word {name} stands in quotes"
                raise fault(message, self.source, begin, OPERAND, replacement=(begin, end, constant))
            if name.lower() in STEP_WORDS:
                message = f"{STEP_WORDS[name.lower()]}; the word {name} stands in quotes"
                raise fault(message, self.source, begin, OPERAND)
            glued = glued_operators(name)
            if glued and (is_letter(name[glued:]) or name[glued:] in names):
                message = "an operator and a name form one word: put a space between them, or quotes around both"
                raise fault(message, self.source, begin, OPERAND, replacement=(begin + glued, begin + glued, " "))

    def check_past(self, formula: LtlfFormula) -> None:
        """Raise SpecSyntaxError where an operator looks back from the first step."""
        token = self.looks_back_first
        if token is None or token.op is None:
            return
        shown, first = _AT_FIRST[token.op]
        message = f"no operator of the future stands around {token.op.value}, so it looks back from the first step"
        expected = f"F(last & {shown}) to look back from the last step, or {first} for the first step"
        past_alone = all(node.op in BOOLEAN | PAST for node in formula.nodes)
        replacement = (0, len(self.source), f"F(last & ({self.source}))") if past_alone else None
        raise fault(message, self.source, token.position, expected, replacement=replacement)

    def _deepen(self) -> None:
        self.depth += 1
        self.guard.check("nesting_depth_max", self.depth)

    def _complete(self, operand: int) -> None:
        """Take a finished operand: the waiting prefixes apply to it, innermost first."""
        frame = self.frames[-1]
        # The prefix that stands last is applied first.
        for token in reversed(frame.prefixes):
            operand = self._add(token, (operand,))
        self.depth -= len(frame.prefixes)
        frame.prefixes.clear()
        frame.operands.append(operand)

    def _group(self, operands: list[int], operators: list[Token], level: int) -> int:
        """The formula of operands and operators in turn. The operators bind at `level` or tighter."""
        if not operators:
            return operands[0]
        ops = _LEVELS[level]
        # The loosest operators cut the sequence; what lies between two cuts binds tighter.
        cuts = [number for number, token in enumerate(operators) if token.op in ops]
        for before, cut in itertools.pairwise(cuts):
            one, two = operators[before].op, operators[cut].op
            if one and two and (one is not two or one in _NEVER_CHAINED):
                message = f"tools read a {one} b {two} c differently: write a {one} (b {two} c), or (a {one} b) {two} c"
                raise fault(message, self.source, operators[cut].position, "brackets")
        # Operand i stands before operator i, so a part of n operators has n + 1 operands.
        starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(operators)]
        parts = [self._group(operands[a : b + 1], operators[a:b], level + 1) for a, b in zip(starts, ends, strict=True)]
        if ops[0] in (Op.OR, Op.AND):
            return self._add(operators[cuts[0]], parts) if cuts else parts[0]
        # To the right: a U b U c is a U (b U c).
        result = parts.pop()
        for cut in reversed(cuts):
            result = self._add(operators[cut], (parts.pop(), result))
        return result

    def _add(self, token: Token, args: Sequence[int]) -> int:
        """The node of an operator."""
        assert token.op is not None  # brackets and the end are no operators
        node = self.builder.add(token.op, args)
        if token.op in PAST:
            self.looking_back.setdefault(node, token)
        elif token.op in BOOLEAN:
            for argument in args:
                if argument in self.looking_back:
                    self.looking_back.setdefault(node, self.looking_back[argument])
        return node


def _other_operator(name: str, position: int) -> SpecUnsupported:
    return unsupported(f"the operator {name} is not supported: {OTHER_OPERATORS[name]}", name, position)


def parse_formula(
    source: str, guard: ResourceGuard, atoms: AtomReader | None = None, *, declared: Collection[str] | None = None
) -> LtlfFormula:
    """The formula that `source` spells.

    atoms     reads what else is a proposition where a name may stand
    declared  names that are certainly propositions: other bare words that are operators or constants of other tools
              (Fa, tt, end) are refused; None refuses none
    Raises SpecSyntaxError with the offset of the fault, also where an operator looks back from the first step;
    SpecUnsupported for operators of other dialects (N, F[0,3]) and for the future inside the past; and LimitExceeded
    over formula_chars_max, nesting_depth_max (brackets and prefix operators inside one another) or propositions_max.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.ltlf import propositions_of
    >>> propositions_of(parse_formula("F(dog) -> dog && cat U toy", ResourceGuard(DEFAULT_LIMITS)))
    ('dog', 'cat', 'toy')
    """
    guard.check("formula_chars_max", len(source))
    parser = _Parser(source, guard, atoms)
    formula = parser.parse()
    if declared is not None:
        parser.check_words(declared)
    future: list[bool] = []
    for node in formula.nodes:
        inside = any(future[argument] for argument in node.args)
        if inside and node.op in PAST:
            message = f"the operator {node.op} speaks of the past: nothing inside it may speak of later steps"
            raise unsupported(message, f"the future inside {node.op}", None)
        future.append(inside or node.op not in BOOLEAN | PAST)
    parser.check_past(formula)
    return formula
