"""Compiles a constraint. It becomes an automaton over texts, and from that one over tokens."""

from __future__ import annotations

from collections.abc import Callable

from compiler.artifact import CompiledConstraint
from compiler.diagnostics import explain_unsatisfiable, missing_characters
from compiler.engines import NATIVE, Engines
from compiler.errors import CompileError, LimitExceeded, SpecError, SpecUnsatisfiable, SpecUnspellable, SpecUnsupported
from compiler.forms import PushdownForm, approximated_keywords, constraint_tree, lone_form, unenforced_keywords
from compiler.lifting import UNREACHABLE, TokenAutomaton, lift
from compiler.limits import DEFAULT_LIMITS, SIZE_LIMITS, Limits, ResourceGuard
from compiler.pushdown import PushdownAutomaton, lift_to_tokens
from compiler.spec import (
    GrammarSpec,
    JsonSchemaSpec,
    LabelsSpec,
    LengthSpec,
    Spec,
    check_input_size,
    drop_unused_propositions,
    leaves,
)
from compiler.text import (
    AnyText,
    CharLeaf,
    ConstraintTree,
    TextAutomaton,
    label_automata,
    to_text_automaton,
    without_bounded_leaves,
)
from compiler.vocab import Vocabulary

_NO_TEXT = "no text satisfies the constraint"


def compile_text(
    spec: Spec,
    limits: Limits = DEFAULT_LIMITS,
    cancelled: Callable[[], bool] | None = None,
    engines: Engines = NATIVE,
) -> AnyText:
    """The automaton over texts of a constraint.

    Raises SpecSyntaxError or SpecUnsupported where it cannot be read, SpecUnsatisfiable where no text satisfies it,
    LimitExceeded where it outgrows a limit.

    >>> from compiler.spec import spec_from_json
    >>> from compiler.text import check_text
    >>> text = compile_text(spec_from_json({"keywords": ["dog", "ball"], "ordered": True}))
    >>> check_text(text, "A dog with a ball.").satisfied, check_text(text, "A ball for a dog.").satisfied
    (True, False)
    """
    guard = ResourceGuard(limits, cancelled)
    try:
        read = _read(spec, guard)
        form = lone_form(read, engines, guard)
        if isinstance(form, PushdownForm):
            text: AnyText = form.text
        elif isinstance(read, LabelsSpec):
            return _compile_labels(read, form, guard)[0]
        else:
            text = to_text_automaton(form, guard)
        if text.byte_automaton.min_tokens == UNREACHABLE:
            raise SpecUnsatisfiable(_NO_TEXT)
        return text
    except SpecUnsatisfiable as error:
        raise _refusal(error, spec, engines, guard) from None


def compile_spec(
    spec: Spec,
    vocabulary: Vocabulary,
    limits: Limits = DEFAULT_LIMITS,
    cancelled: Callable[[], bool] | None = None,
    *,
    engines: Engines = NATIVE,
) -> CompiledConstraint:
    """A constraint compiled for a vocabulary.

    cancelled  called at short intervals; the compilation raises CompileCancelled when it returns True
    Raises what compile_text raises, and SpecUnspellable where texts satisfy it but no tokens spell one.

    >>> from compiler.spec import spec_from_json
    >>> vocabulary = Vocabulary((b"ye", b"s", b"no", b"yes", None), eos_ids=(4,))
    >>> tokens = compile_spec(spec_from_json({"choice": ["yes", "no"]}), vocabulary).tokens
    >>> tokens.min_tokens  # "yes" or "no", and EOS
    2
    """
    guard = ResourceGuard(limits, cancelled)
    try:
        read = _read(spec, guard)
        form = lone_form(read, engines, guard)
        try:
            text, tokens, distances = _over_tokens(form, read, vocabulary, guard)
        except LimitExceeded as error:
            # Where nesting is bounded, a schema may keep to the limits.
            if error.limit not in SIZE_LIMITS or not (
                isinstance(form, PushdownForm) and isinstance(read, JsonSchemaSpec)
            ):
                raise
            form = constraint_tree(read, engines, guard)
            text, tokens, distances = _over_tokens(form, read, vocabulary, guard)
        if tokens.min_tokens == UNREACHABLE:
            raise _unsatisfiable_error(text, vocabulary, guard)
    except SpecUnsatisfiable as error:
        raise _refusal(error, spec, engines, guard) from None
    return CompiledConstraint(
        spec=read, text=text, tokens=tokens, state_distances=distances, vocabulary=vocabulary.fingerprint,
        not_enforced=unenforced_keywords(read, guard), approximate=approximated_keywords(form),
        warnings=form.warnings if isinstance(form, PushdownForm) else (),
    )


def _over_tokens(
    form: PushdownForm | ConstraintTree, spec: Spec, vocabulary: Vocabulary, guard: ResourceGuard
) -> tuple[AnyText, TokenAutomaton | PushdownAutomaton, tuple[int | None, ...]]:
    """The automata over texts and tokens, and the distances of displayed states."""
    if isinstance(form, PushdownForm):
        return form.text, lift_to_tokens(form.text.machine, vocabulary, guard), ()
    if isinstance(spec, LabelsSpec):  # over ids of its own: the vocabulary is only the one it is stored for
        text, tokens = _compile_labels(spec, form, guard)
    else:
        text = to_text_automaton(form, guard)
        # From bytes to tokens; the distances to acceptance are computed with it.
        # The expensive step; its cost grows with the vocabulary, all others only with the constraint.
        tokens = lift(text.transducer, text.letters, vocabulary, guard)
    return text, tokens, text.state_distances(tokens)


def _read(spec: Spec, guard: ResourceGuard) -> Spec:
    """The constraint without parts that have no effect. Its size is checked first."""
    # Length before content: a constraint that is too long is not parsed.
    check_input_size(spec, guard.limits)
    # Unused propositions would make the word trace larger for nothing.
    return drop_unused_propositions(spec, guard)


def _refusal(error: SpecUnsatisfiable, spec: Spec, engines: Engines, guard: ResourceGuard) -> CompileError:
    """The error of a constraint for which nothing can be written.

    It names a bound of ours if texts may satisfy the constraint beyond it, else the parts that contradict each other.
    """
    if isinstance(spec, GrammarSpec):  # it has no parts that could contradict each other
        return error
    bound = None if isinstance(spec, LabelsSpec) else _bound_in_the_way(_read(spec, guard), engines, guard)
    return bound or explain_unsatisfiable(spec, engines, guard)


def _bound_in_the_way(spec: Spec, engines: Engines, guard: ResourceGuard) -> LimitExceeded | None:
    """A bound of ours beyond which texts may satisfy the constraint."""
    form = lone_form(spec, engines, guard)
    if isinstance(form, CharLeaf):  # what a leaf by itself leaves out is what is in the way
        return form.left_out[0] if form.left_out else None
    tree, bounds = without_bounded_leaves(constraint_tree(spec, engines, guard))
    if not bounds or not _has_texts(tree, guard):
        return None
    # Without the bounds that only keep automata small, less is left to doubt.
    longer = constraint_tree(spec, engines, guard, shortens=False)
    tree, others = without_bounded_leaves(longer)
    if _has_texts(longer, guard):
        names = {bound.limit for bound in others}
        return next((bound for bound in bounds if bound.limit not in names), bounds[0])
    return others[0] if others and _has_texts(tree, guard) else None


def _has_texts(tree: ConstraintTree, guard: ResourceGuard) -> bool:
    return to_text_automaton(tree, guard).byte_automaton.min_tokens != UNREACHABLE


def _compile_labels(
    spec: LabelsSpec, tree: ConstraintTree, guard: ResourceGuard
) -> tuple[TextAutomaton, TokenAutomaton]:
    if any(isinstance(leaf, LengthSpec) and leaf.sentences is not None for leaf in leaves(spec)):
        raise SpecUnsupported("labels make up no sentences", construct="sentences", field="sentences")
    # Labels are symbols themselves: no bytes, no vocabulary and no lift.
    text, tokens = label_automata(tree, spec.labels, guard)
    if tokens.min_tokens == UNREACHABLE:
        raise SpecUnsatisfiable("no sequence of the labels satisfies the constraint")
    return text, tokens


def _unsatisfiable_error(text: AnyText, vocabulary: Vocabulary, guard: ResourceGuard) -> SpecError:
    """The reason why no tokens satisfy the constraint.

    Either no text does, or the vocabulary cannot spell those that do.
    """
    if text.byte_automaton.min_tokens == UNREACHABLE:
        return SpecUnsatisfiable(_NO_TEXT)
    # Texts exist, so the vocabulary is at fault: the characters that it cannot spell are named.
    characters = missing_characters(text.byte_automaton, vocabulary, guard)
    if not characters:
        return SpecUnspellable("texts satisfy the constraint, but the model's tokens cannot spell one")
    listed = ", ".join(f"{character!r} (U+{ord(character):04X})" for character in characters)
    return SpecUnspellable(
        f"no token of the model can spell {listed}, which the constraint needs", characters=characters
    )
