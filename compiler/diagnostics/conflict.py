"""Why no text satisfies a constraint: few of its conjuncts that contradict each other already, found by deletion.

The conjuncts are the parts of `all`, the outermost conjuncts of a formula, the concepts of keywords, the bounds on a
length, and the parts of an `any` that is negated. Where there are no such pieces, the constraint itself is the one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from compiler.automata import is_empty
from compiler.diagnostics.prose import title
from compiler.engines import Engines
from compiler.errors import CompileCancelled, CompileError, LimitExceeded, SpecUnsatisfiable
from compiler.forms import part_of
from compiler.lifting import UNREACHABLE, lift
from compiler.limits import ResourceGuard
from compiler.ltlf import LtlfFormula, Op, parse_formula, post_order, print_formula, propositions_of
from compiler.spec import (
    EOS,
    NOMATCH,
    RESERVED_NAMES,
    AllSpec,
    AnySpec,
    ChoiceSpec,
    DfaSpec,
    InfillSpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LabelsSpec,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    RegexSpec,
    Spec,
    meanings,
)
from compiler.text import combine, label_automata
from compiler.vocab import byte_vocabulary

SEARCH_S_MAX = 2.0  # a refusal is not to take much longer than what it refuses
_ALONE_MAX = 16  # with more conjuncts, the search does not test each one alone
_PAIRS_MAX = 6  # with more conjuncts, the search does not test each pair
_LISTED_MAX = 8
_FORMS: tuple[tuple[type, str], ...] = (
    (LtlfSpec, "ltlf"), (RegexSpec, "regex"), (KeywordsSpec, "keywords"), (InfillSpec, "infill"),
    (ChoiceSpec, "choice"), (JsonSchemaSpec, "json_schema"), (DfaSpec, "dfa"), (AnySpec, "any"), (NotSpec, "not"),
    (AllSpec, "all"),
)  # fmt: skip
_LENGTHS = ("min_words", "max_words", "max_chars", "sentences")


@dataclass(frozen=True, slots=True)
class _Source:
    """A constraint that is the conjunction of pieces. build: the constraint of some of them, in their order."""

    pieces: tuple[tuple[str, str], ...]  # the path of each from the whole constraint on, and a few words
    build: Callable[[Sequence[int]], Spec]


_Conjunct = tuple[int, int]  # the number of its source, and of its piece there


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A constraint that has to hold for another to hold.

    path   where it stands in the other: `all.0.keywords.1`
    title  a few words
    """

    path: str
    title: str
    spec: Spec


def conjuncts(spec: Spec, guard: ResourceGuard) -> tuple[Conjunct, ...]:
    """What a constraint is the conjunction of, in its order; ordered keywords are in one piece, for each tells of the
    others. Raises LimitExceeded."""
    found = []
    for source in _sources(spec, guard):
        every = source.build(range(len(source.pieces)))
        if isinstance(every, KeywordsSpec) and every.ordered and len(source.pieces) > 1:
            found.append(Conjunct(source.pieces[0][0].rpartition(".")[0], title(every), every))
        else:
            pieces = enumerate(source.pieces)
            found += [Conjunct(path, words, source.build([number])) for number, (path, words) in pieces]
    if not isinstance(spec, LabelsSpec):
        return tuple(found)
    return tuple(dataclasses.replace(one, spec=LabelsSpec(spec.labels, one.spec)) for one in found)


@contextmanager
def naming_conflicts(spec: Spec, engines: Engines, guard: ResourceGuard) -> Iterator[None]:
    """Have the refusal of a constraint that no text satisfies say which of its conjuncts contradict each other."""
    try:
        yield
    except SpecUnsatisfiable:
        raise _refusal(spec, engines, guard) from None


def _refusal(spec: Spec, engines: Engines, guard: ResourceGuard) -> SpecUnsatisfiable:
    """Raises CompileCancelled."""
    what = "no sequence of the labels" if isinstance(spec, LabelsSpec) else "no text"
    try:
        conflict = smallest_conflict(spec, engines, guard)
    except LimitExceeded:  # the time of the compilation is used up: that there is no text is known all the same
        conflict = ()
    return SpecUnsatisfiable(f"{what} satisfies the constraint{_named(conflict)}", conflict=conflict)


def _named(conflict: Sequence[str]) -> str:
    if len(conflict) < 2:
        return f": {conflict[0]} alone rules out every one" if conflict else ""
    shown = [*conflict[:_LISTED_MAX]]
    if len(conflict) > len(shown):
        shown.append(f"{len(conflict) - len(shown)} more")
    return f": {', '.join(shown[:-1])} and {shown[-1]} contradict each other"


def smallest_conflict(spec: Spec, engines: Engines, guard: ResourceGuard) -> tuple[str, ...]:
    """Conjuncts of an unsatisfiable constraint that no text satisfies together: `'all.0' (keywords dog)`.

    None of them can be left out. A smaller set elsewhere among the conjuncts is looked for only where these are few.
    After two seconds, or over a limit, the answer is what is known by then to contradict itself.
    Raises CompileCancelled, and LimitExceeded where the formulas cannot even be read again in time.
    """
    sources = _sources(spec, guard)
    every = [(number, piece) for number, source in enumerate(sources) for piece in range(len(source.pieces))]
    found = _Search(spec, sources, engines, guard).smallest(every) if len(every) > 1 else every
    shown = (sources[number].pieces[piece] for number, piece in found)
    return tuple(f"'{path}' ({words})" for path, words in shown)


class _Search:
    """Looks for a small set of conjuncts without a text."""

    def __init__(self, spec: Spec, sources: Sequence[_Source], engines: Engines, guard: ResourceGuard) -> None:
        self._labels = spec.labels if isinstance(spec, LabelsSpec) else None
        self._sources, self._engines, self._whole = sources, engines, guard
        limits = dataclasses.replace(guard.limits, compile_s_max=min(SEARCH_S_MAX, guard.limits.compile_s_max))
        self._guard = ResourceGuard(limits, self._called_off)

    def smallest(self, every: Sequence[_Conjunct]) -> list[_Conjunct]:
        """A subset of conjuncts that have no text together."""
        kept = list(every)
        try:
            chunk = len(kept) // 2
            while chunk:
                kept = self._without_chunks(kept, chunk)
                chunk //= 2
            return self._fewer(every, len(kept)) or kept
        except _GivenUp as late:
            return late.kept or kept

    def _fewer(self, every: Sequence[_Conjunct], than: int) -> list[_Conjunct]:
        """One or two conjuncts that have no text together; an empty list where the search finds none.

        Only sets of fewer than `than` conjuncts are tried, and each size only where `every` is short.
        """
        for size, most in ((1, _ALONE_MAX), (2, _PAIRS_MAX)):
            for few in combinations(every, size) if size < than and len(every) <= most else ():
                if self._rules_out(few):
                    return list(few)
        return []

    def _without_chunks(self, kept: list[_Conjunct], chunk: int) -> list[_Conjunct]:
        """The conjuncts without each run of `chunk` that the contradiction does not need."""
        at = 0
        while at < len(kept):
            rest = kept[:at] + kept[at + chunk :]
            try:
                needless = bool(rest) and self._rules_out(rest)
            except _GivenUp:
                raise _GivenUp(kept) from None
            if needless:
                kept = rest
            else:
                at += chunk
        return kept

    def _rules_out(self, conjuncts: Sequence[_Conjunct]) -> bool:
        """Whether the conjuncts have no text together; False where that is not known. Raises _GivenUp."""
        try:
            return not self._has_text(self._together(conjuncts))
        except SpecUnsatisfiable:
            return True
        except CompileCancelled:
            raise
        except LimitExceeded as error:
            if error.limit == "compile_s_max":
                raise _GivenUp([]) from None
            return False
        except (CompileError, MemoryError):  # an outside program failed; or less memory is left than the part takes
            raise _GivenUp([]) from None

    def _together(self, conjuncts: Sequence[_Conjunct]) -> Spec:
        wanted: dict[int, list[int]] = {}
        for number, piece in conjuncts:
            wanted.setdefault(number, []).append(piece)
        parts = tuple(self._sources[number].build(pieces) for number, pieces in wanted.items())
        return parts[0] if len(parts) == 1 else AllSpec(parts)

    def _has_text(self, spec: Spec) -> bool:
        tree = part_of(spec, self._engines, self._guard)
        if self._labels is not None:
            return label_automata(tree, self._labels, self._guard)[1].min_tokens != UNREACHABLE
        combined = combine(tree, self._guard)
        if combined.letters.symbols and is_empty(combined.letters):
            return False
        return (
            lift(combined.byte_transducer(self._guard), combined.letters, byte_vocabulary(), self._guard).min_tokens
            != UNREACHABLE
        )

    def _called_off(self) -> bool:
        self._whole.check_time()
        return False


class _GivenUp(Exception):
    """The search takes too long. kept: conjuncts known to have no text together, empty where that is the caller's."""

    def __init__(self, kept: list[_Conjunct]) -> None:
        super().__init__()
        self.kept = kept


def _sources(spec: Spec, guard: ResourceGuard) -> list[_Source]:
    return list(_split(spec.part if isinstance(spec, LabelsSpec) else spec, "", guard))


def _split(spec: Spec, path: str, guard: ResourceGuard) -> Iterator[_Source]:
    """The conjunctions that a constraint is the conjunction of."""
    match spec:
        case AllSpec():
            for number, part in enumerate(spec.parts):
                yield from _split(part, _below(path, f"all.{number}"), guard)
        case NotSpec(AnySpec(parts)):
            for number, part in enumerate(parts):
                yield from _split(NotSpec(part), _below(path, f"not.any.{number}"), guard)
        case NotSpec(NotSpec(part)):
            yield from _split(part, _below(path, "not.not"), guard)
        case LtlfSpec():
            yield _formula_source(spec, path, guard)
        case KeywordsSpec():
            yield _keywords_source(spec, path)
        case LengthSpec():
            yield _length_source(spec, path)
        case _:
            yield _whole(spec, path)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _whole(spec: Spec, path: str) -> _Source:
    form = next((name for kind, name in _FORMS if isinstance(spec, kind)), "constraint")
    return _Source(((path or form, title(spec)),), lambda _: spec)


def _formula_source(spec: LtlfSpec, path: str, guard: ResourceGuard) -> _Source:
    """The conjuncts of a formula, as constraints over the same word trace.

    Each keeps the declarations of the whole formula, and F(eos) where the whole formula names eos.
    """
    formula = parse_formula(spec.formula, guard)
    names = propositions_of(formula)
    declared = dict(spec.propositions)
    if NOMATCH in names:
        declared = meanings(names, declared)
    root = formula.nodes[formula.root]
    if root.op is not Op.AND or any(name.lower() in RESERVED_NAMES for name in declared):
        return _whole(spec, path)
    printed = [print_formula(_subformula(formula, argument)) for argument in root.args]
    always = [f"F({EOS})"] if EOS in names else []

    def build(pieces: Sequence[int]) -> Spec:
        chosen = [f"({printed[piece]})" for piece in pieces]
        return LtlfSpec(" & ".join([*chosen, *always]), tuple(declared.items()))

    return _Source(tuple((_below(path, "ltlf"), title(LtlfSpec(text))) for text in printed), build)


def _subformula(formula: LtlfFormula, root: int) -> LtlfFormula:
    order = post_order([node.args for node in formula.nodes], root)
    rank = {index: position for position, index in enumerate(order)}
    nodes = (formula.nodes[index] for index in order)
    return LtlfFormula(tuple(node._replace(args=tuple(rank[argument] for argument in node.args)) for node in nodes))


def _keywords_source(spec: KeywordsSpec, path: str) -> _Source:
    build = partial(_some_concepts, spec)
    if len(spec.concepts) == 1:
        return _whole(spec, path)
    order = ", in order" if spec.ordered else ""
    numbers = range(len(spec.concepts))
    return _Source(
        tuple((_below(path, f"keywords.{number}"), title(build([number])) + order) for number in numbers), build
    )


def _some_concepts(spec: KeywordsSpec, pieces: Sequence[int]) -> Spec:
    concepts = tuple(spec.concepts[piece] for piece in pieces)
    counts = tuple(spec.counts[piece] for piece in pieces) if spec.counts else ()
    return dataclasses.replace(spec, concepts=concepts, counts=counts)


def _length_source(spec: LengthSpec, path: str) -> _Source:
    bounds = [name for name in _LENGTHS if getattr(spec, name) is not None]

    def build(pieces: Sequence[int]) -> Spec:
        return LengthSpec(**{bounds[piece]: getattr(spec, bounds[piece]) for piece in pieces})

    named = (_below(path, name) if len(bounds) > 1 or not path else path for name in bounds)
    return _Source(tuple((name, title(build([piece]))) for piece, name in enumerate(named)), build)
