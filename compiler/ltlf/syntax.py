"""The concrete syntax of LTLf, from text to a formula. Knows nothing of traces or automata.

The syntax is LTLf2DFA's (X strong, WX weak next) and more: W and M, && and ||, symbols, upper-case and quoted names.
From loosest to tightest: -> and <-> (never chained without brackets), |, &, U, then R W M, then the prefix operators.
U, R, W, M and S read to the right. A word made of operator letters alone (GF, XX, WX) is operators; quoted, a name.
Y, O, H and S speak of the past, as in PPLTL (De Giacomo et al., "Pure-past linear temporal and dynamic logic on finite
traces", 2020). No operator of the future stands inside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.limits import ResourceGuard


class Op(StrEnum):
    """The operator of a formula's node. The value is its printed form."""

    TRUE = "true"
    FALSE = "false"
    LAST = "last"
    NAME = "name"
    NOT = "!"
    NEXT = "X"
    WEAK_NEXT = "WX"
    FINALLY = "F"
    GLOBALLY = "G"
    AND = "&"
    OR = "|"
    IMPLIES = "->"
    IFF = "<->"
    UNTIL = "U"
    RELEASE = "R"
    WEAK_UNTIL = "W"
    STRONG_RELEASE = "M"
    YESTERDAY = "Y"
    ONCE = "O"
    HISTORICALLY = "H"
    SINCE = "S"


class Node(NamedTuple):
    """One node of a formula. It has an operator, the indices of its arguments, and for a proposition its name."""

    op: Op
    args: tuple[int, ...] = ()
    name: str = ""


LEAVES = frozenset({Op.TRUE, Op.FALSE, Op.LAST, Op.NAME})
PAST = frozenset({Op.YESTERDAY, Op.ONCE, Op.HISTORICALLY, Op.SINCE})
PREFIX = frozenset({Op.NOT, Op.NEXT, Op.WEAK_NEXT, Op.FINALLY, Op.GLOBALLY, Op.YESTERDAY, Op.ONCE, Op.HISTORICALLY})
BOOLEAN = frozenset({Op.TRUE, Op.FALSE, Op.NAME, Op.NOT, Op.AND, Op.OR, Op.IMPLIES, Op.IFF})
_UNTILS = (Op.UNTIL, Op.SINCE)
RELEASES = (Op.RELEASE, Op.WEAK_UNTIL, Op.STRONG_RELEASE)
_LEVELS: tuple[tuple[Op, ...], ...] = ((Op.IFF, Op.IMPLIES), (Op.OR,), (Op.AND,), _UNTILS, RELEASES)


@dataclass(frozen=True, slots=True)
class LtlfFormula:
    """A formula as a table of shared nodes. Arguments come before the nodes that use them, and the root is last.

    Two formulas are equal exactly when their trees are, up to brackets within & and |, which take any number of
    arguments. A table and not a tree, so that no walk over it recurses. Raises ValueError on a malformed table.
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("a formula has at least one node")
        for index, node in enumerate(self.nodes):
            arity = 0 if node.op in LEAVES else 1 if node.op in PREFIX else 2
            more_allowed = node.op in (Op.AND, Op.OR)
            if len(node.args) != arity and not (more_allowed and len(node.args) > arity):
                raise ValueError(f"{node.op} takes {arity} arguments")
            if not all(0 <= argument < index for argument in node.args):
                raise ValueError("an argument comes before the node that uses it")

    @property
    def root(self) -> int:
        return len(self.nodes) - 1


def post_order(args: Sequence[tuple[int, ...]], root: int) -> list[int]:
    """The nodes below `root` and itself, arguments first, each once. `args[i]` are the arguments of i."""
    # An explicit stack: formulas may be deeper than Python's recursion limit.
    order: list[int] = []
    done: set[int] = set()
    pending = [root]
    while pending:
        index = pending[-1]
        # A node is put back until its arguments are done; each is done once, however often it is used.
        waiting = [argument for argument in args[index] if argument not in done]
        if waiting:
            pending.extend(reversed(waiting))
            continue
        pending.pop()
        if index not in done:
            done.add(index)
            order.append(index)
    return order


def subformula(nodes: Sequence[Node], root: int) -> LtlfFormula:
    """The formula at `root` of a table. Nodes that it does not use are dropped."""
    order = post_order([node.args for node in nodes], root)
    # Arguments come before their users, so the renumbering keeps that order.
    rank = {index: position for position, index in enumerate(order)}
    used = (nodes[index] for index in order)
    return LtlfFormula(tuple(node._replace(args=tuple(rank[argument] for argument in node.args)) for node in used))


class Builder:
    """Makes formulas bottom up; equal nodes are made once."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._index: dict[Node, int] = {}

    def add(self, op: Op, args: Sequence[int] = (), name: str = "") -> int:
        """The index of the node `op(args)`. Nested & (or nested |) are flattened."""
        flat: list[int] = []
        for argument in args:
            inner = self._nodes[argument]
            # & and | take any number of arguments, so that equal formulas with other brackets have equal tables.
            flat.extend(inner.args if inner.op is op and op in (Op.AND, Op.OR) else (argument,))
        node = Node(op, tuple(flat), name)
        if node not in self._index:
            self._index[node] = len(self._nodes)
            self._nodes.append(node)
        return self._index[node]

    def formula(self, root: int) -> LtlfFormula:
        """The formula at `root`, without the nodes it does not use."""
        return subformula(self._nodes, root)


def propositions_of(formula: LtlfFormula) -> tuple[str, ...]:
    """The names in the formula, in order of first occurrence."""
    return tuple(node.name for node in formula.nodes if node.op is Op.NAME)


# --- text to tokens -------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<symbol><->|<=>|->|=>|&&|\|\||[&|!~∧∨→↔¬○●◇□()])
      | "(?P<quoted>(?:[^"\\]|\\["\\])*)" | (?P<word>[^\W\d]\w*)""",
    re.VERBOSE,
)
_SYMBOLS = {
    "<->": Op.IFF, "<=>": Op.IFF, "↔": Op.IFF, "->": Op.IMPLIES, "=>": Op.IMPLIES, "→": Op.IMPLIES,
    "&": Op.AND, "&&": Op.AND, "∧": Op.AND, "|": Op.OR, "||": Op.OR, "∨": Op.OR, "!": Op.NOT, "~": Op.NOT, "¬": Op.NOT,
    "○": Op.NEXT, "●": Op.WEAK_NEXT, "◇": Op.FINALLY, "□": Op.GLOBALLY,
}  # fmt: skip
OPERATOR_WORD = re.compile(r"(?:WX|[XFGURWMYOHS])+")
_OPERATOR_LETTERS = re.compile(r"WX|[XFGURWMYOHS]")
CONSTANTS = {"true": Op.TRUE, "false": Op.FALSE, "last": Op.LAST}
_OTHER_DIALECTS = frozenset({"N", "Z", "P", "T"})  # next as N, weak yesterday as Z, once as P, trigger as T
AtomReader: TypeAlias = Callable[[str, int], tuple[str, int] | None]
"""Reads what stands for a proposition at a position of the source: its name and its end, None if there is none."""
_OPERAND = "a formula: a name, an operator such as F or !, or '('"
_INFIX = "an operator such as & or U, or the end"


class _Token(NamedTuple):
    """A token: `text` is "(", ")" or "" (the end) where `op` is None, a name where it is NAME, else as written."""

    op: Op | None
    position: int
    text: str
    bare: bool = True


def _fault(message: str, source: str, position: int, expected: str) -> SpecSyntaxError:
    description = f"{message}; expected {expected}"
    return SpecSyntaxError(description, source=source, position=position, expected=expected, field="ltlf")


def _unsupported(message: str, construct: str, position: int | None) -> SpecUnsupported:
    return SpecUnsupported(message, construct=construct, position=position, field="ltlf")


def _no_token(source: str, position: int) -> Exception:
    """What is wrong where no token starts. Never quotes the source: messages go out in answers and logs."""
    character = source[position]
    bracketed = re.compile(r"((?:WX|[XFGURWM]))\[(\s*!\s*\])?").search(source, max(position - 2, 0), position + 40)
    if character == "[" and bracketed and bracketed.end(1) == position:
        construct = f"{bracketed[1]}[!]" if bracketed[2] else f"{bracketed[1]}[...]"
        advice = "write X for the strong next, WX for the weak one" if bracketed[2] else "spell the bound out with X"
        return _unsupported(f"{construct} is not supported: {advice}", construct, position)
    if character == '"':
        return _fault("the quoted name does not end", source, position, 'a closing " (write \\" and \\\\ inside)')
    if character.isdigit():
        return _fault("a name cannot begin with a digit", source, position, f"{_OPERAND} (or quote the name)")
    code = f"U+{ord(character):04X}"
    return _fault(f"the character {code} has no meaning here", source, position, "a token (or quote the name)")


def _tokens(source: str, atoms: AtomReader | None) -> Iterator[_Token]:
    """The tokens of the source, closed by one with an empty text."""
    position = 0
    while position < len(source):
        if atoms and (atom := atoms(source, position)):
            name, end = atom
            yield _Token(Op.NAME, position, name, bare=False)
            position = end
            continue
        match = _TOKEN.match(source, position)
        if match is None:
            raise _no_token(source, position)
        text = match[0]
        if match.lastgroup == "symbol":
            yield _Token(_SYMBOLS.get(text), position, text)
        elif match.lastgroup == "quoted":
            name = re.sub(r"\\(.)", r"\1", match["quoted"])
            if not name:
                raise _fault("a quoted name is empty", source, position, "a name with at least one character")
            yield _Token(Op.NAME, position, name, bare=False)
        elif match.lastgroup == "word":
            yield from _word(text, position)
        position = match.end()
    yield _Token(None, len(source), "")


def _word(text: str, position: int) -> Iterator[_Token]:
    """A bare word: a constant, a run of operators, or a name."""
    # TRUE and True are constants too, so that they are not taken for propositions by mistake.
    if text.lower() in CONSTANTS:
        yield _Token(CONSTANTS[text.lower()], position, text)
    # A word of operator letters alone is read as these operators: GF, XX.
    elif OPERATOR_WORD.fullmatch(text):
        for letters in _OPERATOR_LETTERS.finditer(text):
            yield _Token(Op(letters[0]), position + letters.start(), letters[0])
    else:
        yield _Token(Op.NAME, position, text)


# --- tokens to a formula --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Frame:
    """One open bracket, or the formula: operands, operators and waiting prefixes."""

    opened_at: int
    operands: list[int] = field(default_factory=list)
    operators: list[_Token] = field(default_factory=list)
    prefixes: list[Op] = field(default_factory=list)


class _Parser:
    """Reads tokens with an explicit stack. `depth` counts open brackets and waiting prefix operators."""

    def __init__(self, source: str, guard: ResourceGuard, atoms: AtomReader | None) -> None:
        self.source, self.guard, self.atoms = source, guard, atoms
        self.builder = Builder()
        self.frames = [_Frame(0)]
        self.depth = 0
        self.names: set[str] = set()

    def parse(self) -> LtlfFormula:
        previous: _Token | None = None  # None, or an operand's last token where an operator may follow
        for token in _tokens(self.source, self.atoms):
            complete = self._infix(token, previous) if previous else self._operand(token)
            previous = token if complete else None
        frame = self.frames[-1]
        if len(self.frames) > 1:
            line = self.source.count("\n", 0, frame.opened_at) + 1
            column = frame.opened_at - (self.source.rfind("\n", 0, frame.opened_at) + 1) + 1
            message = f"the bracket opened in line {line}, column {column} is not closed"
            raise _fault(message, self.source, len(self.source), "')'")
        return self.builder.formula(self._group(frame.operands, frame.operators, 0))

    def _operand(self, token: _Token) -> bool:
        """Read a token where a formula must start or go on. True when it completes an operand."""
        if token.op in PREFIX:
            self._deepen()
            self.frames[-1].prefixes.append(token.op)
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
            self.guard.check("propositions_max", len(self.names))
        self._complete(self.builder.add(token.op, (), name))
        return True

    def _no_operand(self, token: _Token) -> SpecSyntaxError:
        fault = f"'{token.text}' cannot start a formula" if token.text else "the formula ends too early"
        quote = "; a name made of operator letters alone must be quoted" if token.text.isalpha() else ""
        return _fault(fault, self.source, token.position, _OPERAND + quote)

    def _infix(self, token: _Token, previous: _Token) -> bool:
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

    def _no_infix(self, token: _Token, previous: _Token) -> Exception:
        if token.text == ")" and token.op is None:
            return _fault("')' closes no bracket", self.source, token.position, _INFIX)
        # A name beside an operand is an error; the names of other dialects' operators get a message of their own.
        for candidate in (previous, token):
            if candidate.op is Op.NAME and candidate.bare and candidate.text in _OTHER_DIALECTS:
                message = f"the operator {candidate.text} is not supported: X is the strong next, WX the weak one"
                return _unsupported(message, candidate.text, candidate.position)
        return _fault("two formulas stand side by side", self.source, token.position, _INFIX)

    def _deepen(self) -> None:
        self.depth += 1
        self.guard.check("nesting_depth_max", self.depth)

    def _complete(self, operand: int) -> None:
        """Take a finished operand: the waiting prefixes apply to it, innermost first."""
        frame = self.frames[-1]
        # The prefix that stands last is applied first.
        for op in reversed(frame.prefixes):
            operand = self.builder.add(op, (operand,))
        self.depth -= len(frame.prefixes)
        frame.prefixes.clear()
        frame.operands.append(operand)

    def _group(self, operands: list[int], operators: list[_Token], level: int) -> int:
        """The formula of operands and operators in turn. The operators bind at `level` or tighter."""
        if not operators:
            return operands[0]
        ops = _LEVELS[level]
        # The loosest operators cut the sequence; what lies between two cuts binds tighter.
        cuts = [number for number, token in enumerate(operators) if token.op in ops]
        chained = {operators[cut].op for cut in cuts} if len(cuts) > 1 else set()
        if chained & {Op.IMPLIES, Op.IFF, Op.SINCE}:
            at = operators[cuts[1]].position
            raise _fault("a chain of ->, <-> or S reads differently in different tools", self.source, at, "brackets")
        # Operand i stands before operator i, so a part of n operators has n + 1 operands.
        starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(operators)]
        parts = [self._group(operands[a : b + 1], operators[a:b], level + 1) for a, b in zip(starts, ends, strict=True)]
        if ops[0] in (Op.OR, Op.AND):
            return self.builder.add(ops[0], parts) if cuts else parts[0]
        # To the right: a U b U c is a U (b U c).
        result = parts.pop()
        for cut in reversed(cuts):
            op = operators[cut].op
            assert op is not None  # an operator between two operands always has one
            result = self.builder.add(op, (parts.pop(), result))
        return result


def parse_formula(source: str, guard: ResourceGuard, atoms: AtomReader | None = None) -> LtlfFormula:
    """The formula that `source` spells.

    atoms  reads what else is a proposition where a name may stand
    Raises SpecSyntaxError with the offset of the fault, SpecUnsupported for operators of other dialects (X[!], N) and
    for the future inside the past, and LimitExceeded over formula_chars_max, nesting_depth_max (brackets and prefix
    operators inside one another) or propositions_max.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> propositions_of(parse_formula("F(dog) -> dog && cat U toy", ResourceGuard(DEFAULT_LIMITS)))
    ('dog', 'cat', 'toy')
    """
    guard.check("formula_chars_max", len(source))
    formula = _Parser(source, guard, atoms).parse()
    future: list[bool] = []
    for node in formula.nodes:
        inside = any(future[argument] for argument in node.args)
        if inside and node.op in PAST:
            message = f"the operator {node.op} speaks of the past: nothing inside it may speak of later steps"
            raise _unsupported(message, f"the future inside {node.op}", None)
        future.append(inside or node.op not in BOOLEAN | PAST)
    return formula
