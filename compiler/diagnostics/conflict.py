"""Explains why no text satisfies a constraint. It finds a minimal unsatisfiable subset (MUS) of the conjuncts by
deletion.

The conjuncts are the parts of `all`, the outermost conjuncts of a formula, the concepts of keywords, the bounds on a
length, and the parts of an `any` that is negated. A constraint of another form is its own and only conjunct. A schema
that has no value by itself is taken apart by its keywords; of a sequence without texts, a part without texts is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from compiler.automata import is_empty
from compiler.diagnostics.prose import contradiction, keywords_title, title
from compiler.diagnostics.schema_keywords import schema_keywords, without_keywords
from compiler.engines import Engines
from compiler.errors import CompileCancelled, CompileError, LimitExceeded, SpecUnsatisfiable
from compiler.exact_json import dump_json, load_json
from compiler.forms import constraint_tree
from compiler.lifting import UNREACHABLE, lift
from compiler.limits import ResourceGuard
from compiler.ltlf import Op, parse_formula, print_formula, propositions_of, subformula
from compiler.spec import (
    EOS,
    NOMATCH,
    RESERVED_NAMES,
    AllSpec,
    AnyPart,
    AnySpec,
    JsonSchemaSpec,
    KeywordsSpec,
    LabelsSpec,
    LengthSpec,
    LtlfSpec,
    NotSpec,
    OptionalPart,
    Part,
    RepeatPart,
    SequenceSpec,
    Spec,
    TextPart,
    inner_parts,
    resolve_propositions,
    spec_warnings,
)
from compiler.text import PushdownLeaf, combine, label_automata, leaves_of_type, to_text, without_bounded_leaves
from compiler.vocab import byte_vocabulary

# Compile steps of a search, about two seconds of one core: a refusal is not to take much longer than what it refuses.
# Time would not do, because a busy machine would name other conjuncts than an idle one.
WORK_MAX = 150_000
_TRIAL_STEPS = 500  # of a compilation, whatever it compiles
_STATES_PER_STEP = 200  # states over bytes that cost as much as one step
_ALONE_MAX = 16  # with more conjuncts, the search does not test each one alone
_KEYWORDS_MAX = 12  # of a schema, that a refusal lists
_PAIRS_MAX = 6  # with more conjuncts, the search does not test each pair


@dataclass(frozen=True, slots=True)
class _Source:
    """A constraint that is the conjunction of pieces.

    pieces  the path of each from the outermost constraint on, and its title
    build   the constraint that is the conjunction of the pieces with these numbers, in their order
    """

    pieces: tuple[tuple[str, str], ...]
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
    """The constraints of which a constraint is the conjunction, in order. Raises LimitExceeded.

    Ordered keywords are one conjunct, since each of them speaks of the others.
    """
    parts = []
    for source in _sources(spec, guard):
        conjunction = source.build(range(len(source.pieces)))
        if isinstance(conjunction, KeywordsSpec) and conjunction.ordered and len(source.pieces) > 1:
            parts.append(Conjunct(source.pieces[0][0].rpartition(".")[0], title(conjunction), conjunction))
        else:
            pieces = enumerate(source.pieces)
            parts += [Conjunct(path, words, source.build([number])) for number, (path, words) in pieces]
    if not isinstance(spec, LabelsSpec):
        return tuple(parts)
    # Over labels, each conjunct needs the alphabet to be a constraint of its own.
    return tuple(dataclasses.replace(part, spec=LabelsSpec(spec.labels, part.spec)) for part in parts)


def explain_unsatisfiable(spec: Spec, engines: Engines, guard: ResourceGuard) -> SpecUnsatisfiable:
    """The error that names conflicting conjuncts, and probable mistakes. Raises CompileCancelled."""
    subject = "no sequence of the labels" if isinstance(spec, LabelsSpec) else "no text"
    try:
        conflict = minimal_conflict(spec, engines, guard)
    except LimitExceeded:  # the time of the compilation is used up; that no text satisfies it is certain all the same
        conflict = ()
    hints = "".join(f"; {warning.field}: {warning.message}" for warning in spec_warnings(spec))
    return SpecUnsatisfiable(f"{subject} satisfies the constraint{contradiction(conflict)}{hints}", conflict=conflict)


def minimal_conflict(spec: Spec, engines: Engines, guard: ResourceGuard, outer: str = "") -> tuple[str, ...]:
    """A minimal unsatisfiable subset of a constraint's conjuncts. Each is named as `'all.0' (keywords dog)`.

    No conjunct of it can be left out. A smaller subset elsewhere is searched for only where there are few conjuncts.
    After `WORK_MAX` steps, or over a limit, the answer is the smallest unsatisfiable set so far, which need not be
    minimal. Raises CompileCancelled, and LimitExceeded where there is no time to read the formulas again.

    outer  the path at which the constraint stands

    >>> from compiler.engines import NATIVE
    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.spec import spec_from_json
    >>> spec = spec_from_json({"all": [{"regex": "a+"}, {"max_words": 3}, {"keywords": ["b"]}]})
    >>> minimal_conflict(spec, NATIVE, ResourceGuard(DEFAULT_LIMITS))
    ("'all.0' (regex a+)", "'all.2' (keywords b)")
    """
    sources = _sources(spec, guard, outer)
    all_conjuncts = [(number, piece) for number, source in enumerate(sources) for piece in range(len(source.pieces))]
    search = _ConflictSearch(spec, sources, engines, guard)
    conflict = search.minimal(all_conjuncts) if len(all_conjuncts) > 1 else all_conjuncts
    pieces = [sources[number].pieces[piece] for number, piece in conflict]
    alone = sources[conflict[0][0]].build([conflict[0][1]]) if len(conflict) == 1 else None
    if isinstance(alone, JsonSchemaSpec):
        keywords = _schema_source(alone, pieces[0][0])
        search = _ConflictSearch(spec, [keywords], engines, guard)
        whole = [(_inside(alone, pieces[0][0], alone.form), pieces[0][1])]
        pieces = [keywords.pieces[piece] for _, piece in search.minimal_keywords()] or whole
    elif isinstance(alone, SequenceSpec) and (found := search.part_without_texts(alone.root)) is not None:
        return minimal_conflict(found[1], engines, guard, _inside(alone, pieces[0][0], found[0]))
    return tuple(f"'{path}' ({words})" for path, words in pieces)


class _ConflictSearch:
    """Searches for a minimal set of conjuncts that no text satisfies together.

    Deletion-based: conjuncts without which the others remain unsatisfiable are left out, first in halves, then in
    smaller and smaller runs, at last one by one. Satisfiability is decided by compiling over single bytes.
    """

    def __init__(self, spec: Spec, sources: Sequence[_Source], engines: Engines, guard: ResourceGuard) -> None:
        self._labels = spec.labels if isinstance(spec, LabelsSpec) else None
        self._sources, self._engines, self._caller_guard = sources, engines, guard
        self._guard = ResourceGuard(guard.limits, self._count_step)
        self._work = 0  # steps so far
        self._remaining: list[_Conjunct] = []  # no text satisfies these together

    def minimal(self, all_conjuncts: Sequence[_Conjunct]) -> list[_Conjunct]:
        """A subset of the conjuncts that no text satisfies together. It is minimal unless the search stops early."""
        self._remaining = list(all_conjuncts)
        try:
            self._remove_halves()
            # A minimal set need not be the smallest: one or two conjuncts elsewhere may do.
            return self._small_subset(all_conjuncts, len(self._remaining)) or self._remaining
        except _SearchStopped:
            return self._remaining

    def minimal_keywords(self) -> list[_Conjunct]:
        """The keywords of the only source, a schema, that leave no value. Empty where they are many.

        What stands beside all keywords may leave no value either; then the result is empty, too.
        """
        self._remaining = [(0, piece) for piece in range(len(self._sources[0].pieces))]
        try:
            self._remove_halves()
            if len(self._remaining) == 1 and self._rules_out_spec(self._sources[0].build([])):
                return []
        except _SearchStopped:
            pass
        return self._remaining if len(self._remaining) <= _KEYWORDS_MAX else []

    def part_without_texts(self, part: Part, path: str = "") -> tuple[str, Spec] | None:
        """The path and the constraint of what leaves a part without texts. None where nothing was found."""
        if isinstance(part, TextPart):
            with suppress(_SearchStopped):
                return (path, part.spec) if self._rules_out_spec(part.spec) else None
            return None
        is_optional = isinstance(part, OptionalPart) or (isinstance(part, RepeatPart) and part.minimum == 0)
        parts = () if is_optional else inner_parts(part)
        inside = (self.part_without_texts(each, _below(path, name)) for name, each in parts)
        if isinstance(part, AnyPart):  # the first option stands for all
            first = next(inside)
            return first if first is not None and None not in inside else None
        return next(filter(None, inside), None)

    def _remove_halves(self) -> None:
        # Of many conjuncts most are needless: halves remove them in few compilations.
        chunk = len(self._remaining) // 2
        while chunk:
            self._remove_chunks(chunk)
            chunk //= 2

    def _small_subset(self, all_conjuncts: Sequence[_Conjunct], than: int) -> list[_Conjunct]:
        """One or two conjuncts that no text satisfies together. Empty where the search finds none.

        Only sets of fewer than `than` conjuncts are tried, and each size only where there are few conjuncts.
        """
        for size, size_max in ((1, _ALONE_MAX), (2, _PAIRS_MAX)):
            for subset in combinations(all_conjuncts, size) if size < than and len(all_conjuncts) <= size_max else ():
                if self._rules_out(subset):
                    return list(subset)
        return []

    def _remove_chunks(self, chunk: int) -> None:
        """Remove each run of `chunk` conjuncts that the contradiction does not need."""
        start = 0
        while start < len(self._remaining):
            candidates = self._remaining[:start] + self._remaining[start + chunk :]
            if candidates and self._rules_out(candidates):
                self._remaining = candidates
            else:
                start += chunk

    def _rules_out(self, conjuncts: Sequence[_Conjunct]) -> bool:
        return self._rules_out_spec(self._join_conjuncts(conjuncts))

    def _rules_out_spec(self, spec: Spec) -> bool:
        """True when no text satisfies the constraint. False where a limit leaves that open.

        Raises _SearchStopped.
        """
        self._work += _TRIAL_STEPS
        try:
            return not self._has_text(spec)
        except SpecUnsatisfiable:
            return True
        except CompileCancelled:
            raise
        except LimitExceeded as error:
            # Another limit: the reduced constraint may have a text, so nothing is left out.
            if error.limit == "compile_s_max":
                raise _SearchStopped from None
            return False
        except (CompileError, MemoryError):  # an outside program failed, or the part needs more memory than is left
            raise _SearchStopped from None

    def _join_conjuncts(self, conjuncts: Sequence[_Conjunct]) -> Spec:
        pieces_of: dict[int, list[int]] = {}
        for number, piece in conjuncts:
            pieces_of.setdefault(number, []).append(piece)
        # Pieces of one source form one constraint again; keywords, for instance, share their automaton.
        parts = tuple(self._sources[number].build(pieces) for number, pieces in pieces_of.items())
        return parts[0] if len(parts) == 1 else AllSpec(parts)

    def _has_text(self, spec: Spec) -> bool:
        # What a bound of ours leaves out is no contradiction.
        tree, _ = without_bounded_leaves(constraint_tree(spec, self._engines, self._guard))
        if self._labels is not None:
            return label_automata(tree, self._labels, self._guard)[1].min_tokens != UNREACHABLE
        if leaves_of_type(tree, PushdownLeaf):
            return to_text(tree, self._guard).byte_automaton.min_tokens != UNREACHABLE
        combination = combine(tree, self._guard)
        # An empty language of letters needs no transducer.
        if combination.letters.symbols and is_empty(combination.letters):
            return False
        # Tokens may fail to spell a text that exists, so single bytes are the vocabulary here.
        transducer = combination.byte_transducer(self._guard)
        tokens = lift(transducer, combination.letters, byte_vocabulary(), self._guard)
        self._work += tokens.states // _STATES_PER_STEP
        return tokens.min_tokens != UNREACHABLE

    def _count_step(self) -> bool:
        """False. Raises _SearchStopped after `WORK_MAX` steps, and what the check of the compilation's guard raises."""
        self._caller_guard.check_time()
        self._work += 1
        if self._work > WORK_MAX:
            raise _SearchStopped
        return False


class _SearchStopped(Exception):
    """The search ends before its result is minimal."""


def _sources(spec: Spec, guard: ResourceGuard, path: str = "") -> list[_Source]:
    return list(_split(spec.part if isinstance(spec, LabelsSpec) else spec, path, guard))


def _split(spec: Spec, path: str, guard: ResourceGuard) -> Iterator[_Source]:
    """The sources of a constraint's conjuncts. Nested conjunctions are flattened, and negations are pushed inwards."""
    match spec:
        case AllSpec():
            for number, part in enumerate(spec.parts):
                yield from _split(part, _below(path, f"all.{number}"), guard)
        # De Morgan: a negated disjunction is the conjunction of the negations.
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
            yield _only_conjunct(spec, path)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _inside(spec: Spec, path: str, field: str) -> str:
    """The path of a field of a constraint with a path."""
    return field if path == spec.form else f"{path}.{field}"


def _only_conjunct(spec: Spec, path: str) -> _Source:
    return _Source(((path or spec.form, title(spec)),), lambda _: spec)


def _schema_source(spec: JsonSchemaSpec, path: str) -> _Source:
    schema = load_json(spec.schema)
    keywords = schema_keywords(schema)

    def build(pieces: Sequence[int]) -> Spec:
        left_out = [keyword for number, keyword in enumerate(keywords) if number not in pieces]
        return dataclasses.replace(spec, schema=dump_json(without_keywords(schema, left_out)))

    base = _inside(spec, path, spec.form)
    paths = (".".join((base, *each.path, *(name for name, _ in each.keywords[:1]))) for each in keywords)
    return _Source(tuple(zip(paths, (keywords_title(each.keywords) for each in keywords), strict=True)), build)


def _formula_source(spec: LtlfSpec, path: str, guard: ResourceGuard) -> _Source:
    """The conjuncts of a formula, as constraints over the same word trace.

    Each keeps the declarations of the whole formula, and F(eos) where the whole formula names eos.
    """
    formula = parse_formula(spec.formula, guard, declared=dict(spec.propositions))
    names = propositions_of(formula)
    declared = dict(spec.propositions)
    if NOMATCH in names:
        declared = resolve_propositions(names, declared)
    root = formula.nodes[formula.root]
    # Each conjunct declares the names of the formula, and reserved names cannot be declared.
    if root.op is not Op.AND or any(name.lower() in RESERVED_NAMES for name in declared):
        return _only_conjunct(spec, path)
    printed = [print_formula(subformula(formula.nodes, argument)) for argument in root.args]
    # A formula that names eos is read over a trace with one more step, which each conjunct must keep.
    always = [f"F({EOS})"] if EOS in names else []

    def build(pieces: Sequence[int]) -> Spec:
        texts = [f"({printed[piece]})" for piece in pieces]
        return LtlfSpec(" & ".join([*texts, *always]), tuple(declared.items()))

    return _Source(tuple((_below(path, "ltlf"), title(LtlfSpec(text))) for text in printed), build)


def _keywords_source(spec: KeywordsSpec, path: str) -> _Source:
    def build(pieces: Sequence[int]) -> Spec:
        # The order of the pieces is that of the concepts.
        concepts = tuple(spec.concepts[piece] for piece in pieces)
        counts = tuple(spec.counts[piece] for piece in pieces) if spec.counts else ()
        return dataclasses.replace(spec, concepts=concepts, counts=counts)

    if len(spec.concepts) == 1:
        return _only_conjunct(spec, path)
    order = ", in order" if spec.ordered else ""
    numbers = range(len(spec.concepts))
    return _Source(
        tuple((_below(path, f"keywords.{number}"), title(build([number])) + order) for number in numbers), build
    )


def _length_source(spec: LengthSpec, path: str) -> _Source:
    bounds = list(spec.bounds)

    def build(pieces: Sequence[int]) -> Spec:
        return LengthSpec(**{bounds[piece]: getattr(spec, bounds[piece]) for piece in pieces})

    paths = (_below(path, name) if len(bounds) > 1 or not path else path for name in bounds)
    return _Source(tuple((name, title(build([piece]))) for piece, name in enumerate(paths)), build)
