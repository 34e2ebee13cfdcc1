"""A constraint prepared for the searches of one model. All requests for it share it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from compiler.errors import BudgetTooSmall, Undecided
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.products import EXPANSIONS_MAX, UNKNOWN, LazyProduct, ProductCosts, ProductStart, ProductStates
from compiler.pushdown import MEMBERS_MAX, Configurations, ExitCosts, PushdownAutomaton, Stacks
from decoding.errors import PromptTooLong, VocabularyMismatch
from decoding.forced_tokens import ForcedTokens, TokenBytes
from decoding.heuristic import Endings, cost_to_go, exit_costs, product_costs
from decoding.model import LanguageModel
from decoding.options import NATS_PER_TOKEN, Heuristics
from decoding.tensors import ExplicitStates, Graphs, HostStates, LazyStates, TokenStates, TokenTables, like, to_float64

Automaton: TypeAlias = TokenAutomaton | PushdownAutomaton | LazyProduct
Start: TypeAlias = int | Stacks | ProductStart
"""A state apart from any generation: a number of an explicit automaton, the stacks of a pushdown automaton, or those of
a product's parts.
"""


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Limits of the states that a generation meets.

    readings    how many readings of a text a state of a pushdown automaton may have
    expansions  how many states the searches for the successors of one state of a product expand
    """

    readings: int = MEMBERS_MAX
    expansions: int = EXPANSIONS_MAX


DEFAULT_STATE_LIMITS = StateLimits()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PreparedConstraint:
    """An automaton with its tables on the model's device. S automaton states.

    tables      all states of an explicit automaton, or the ids of another one
    cost_to_go  nats to acceptance under the model's unigram prior, float64 [S], for each exit or part; None: no prior
    forced      the forced token of each state; None: none is forced
    endings     how the model ends its texts; None: by EOS alone
    limits      those of states that a generation meets
    graphs      of the model's device, which replay the steps of searches; None: steps are not captured

    >>> constraint = PreparedConstraint.prepare(automaton, model.device)
    >>> constraint.refuse_early(model, prompt_tokens=1, max_tokens=2)
    Traceback (most recent call last):
    compiler.errors.BudgetTooSmall: the constraint needs at least 3 tokens, max_tokens is 2
    """

    automaton: Automaton
    tables: ExplicitStates | TokenTables
    cost_to_go: Tensor | ExitCosts | ProductCosts | None = None
    forced: ForcedTokens | None = None
    endings: Endings | None = None
    limits: StateLimits = DEFAULT_STATE_LIMITS
    graphs: Graphs | None = None

    @classmethod
    def prepare(
        cls, automaton: Automaton, device: torch.device, *, prior: Tensor | None = None,
        pieces: TokenBytes | None = None, endings: Endings | None = None, limits: StateLimits = DEFAULT_STATE_LIMITS,
        graphs: Graphs | None = None,
    ) -> PreparedConstraint:
        """Copy the automaton's arrays to the device. It takes milliseconds for 50,000 ids, more for a cost to go.

        prior    float64 [V], log-probs from `heuristic.unigram_prior`
        pieces   the vocabulary's bytes and the tokenizer, for forced tokens
        endings  from `heuristic.find_endings`
        graphs   for all constraints of the model
        """
        # Ids of endings get token classes of their own, since their cost differs from that of other ids.
        split = automaton if endings is None else automaton.with_own_classes(endings.ids)
        parts: dict[str, Any] = {"endings": endings, "limits": limits, "graphs": graphs}
        if isinstance(split, LazyProduct):
            tables = TokenTables.of(split.token_class, split.classes, split.eos_ids, device)
            of_parts = None if prior is None else product_costs(split, prior)
            forced = ForcedTokens(ProductStates(split), pieces) if pieces is not None else None
            return cls(automaton=split, tables=tables, cost_to_go=of_parts, forced=forced, **parts)
        if isinstance(split, PushdownAutomaton):
            tables = TokenTables.of(split.token_class, split.classes, split.eos_ids, device)
            cost = None if prior is None else exit_costs(split, prior)
            forced = ForcedTokens(Configurations(split), pieces) if pieces is not None else None
            return cls(automaton=split, tables=tables, cost_to_go=cost, forced=forced, **parts)
        # The states are the same, so the forced tokens and the cost to go come from the automaton as it was compiled.
        assert isinstance(automaton, TokenAutomaton)
        states = ExplicitStates.from_automaton(split, device)
        nats = None if prior is None else cost_to_go(automaton, prior)
        forced = ForcedTokens(automaton, pieces) if pieces is not None else None
        return cls(
            automaton=automaton, tables=states, cost_to_go=None if nats is None else nats.to(device), forced=forced,
            **parts,
        )  # fmt: skip

    def begin_states(
        self, start: Start | None = None, *, heuristics: Heuristics | None = None, tensors: bool = False
    ) -> TokenStates:
        """The states of one generation.

        start       the state before the answer; None: the automaton's own
        heuristics  which costs to go the states have; None: no cost is asked for
        tensors     whether arrays are torch's on the CPU, too
        """
        tables = self.tables if tensors else self.tables.for_search()
        uses_prior = heuristics is not None and heuristics.cost_to_go == "unigram" and self.cost_to_go is not None
        weight = 0.0 if heuristics is None else heuristics.cost_weight
        nats = 0.0 if heuristics is None or heuristics.cost_to_go == "none" else NATS_PER_TOKEN
        if isinstance(tables, ExplicitStates):
            assert start is None or isinstance(start, int)
            cost = None
            if heuristics is not None:
                model = tables.distance
                cost = weight * (like(model, self.cost_to_go) if uses_prior else nats * to_float64(model))
            return replace(tables, cost=cost, start=tables.start if start is None else start)
        if isinstance(self.automaton, LazyProduct):
            of_parts = self.cost_to_go if uses_prior and isinstance(self.cost_to_go, ProductCosts) else None
            states = _product_states(self.automaton, start, self.limits, of_parts)
            return LazyStates(states, tables, cost_weight=weight, nats_per_token=None if uses_prior else nats)
        assert isinstance(self.automaton, PushdownAutomaton) and not isinstance(start, int | ProductStart)
        costs = self.cost_to_go if uses_prior and isinstance(self.cost_to_go, ExitCosts) else None
        configurations = Configurations(self.automaton, members_max=self.limits.readings, costs=costs, start=start)
        return LazyStates(configurations, tables, cost_weight=weight, nats_per_token=None if uses_prior else nats)

    def forced_tokens(self, states: TokenStates) -> ForcedTokens | None:
        """The forced tokens of a generation's states."""
        if self.forced is None or not isinstance(states, LazyStates):
            return self.forced
        return self.forced.over(states.states)

    def refuse_early(
        self, model: LanguageModel[Any], prompt_tokens: int, max_tokens: int, start: Start | None = None
    ) -> None:
        """Raises VocabularyMismatch, BudgetTooSmall, Undecided or PromptTooLong where a generation is impossible.

        start  the state before the answer; None: the automaton's own
        """
        automaton = self.automaton
        if model.vocab_size != automaton.vocabulary_size:
            raise VocabularyMismatch(automaton.vocabulary_size, model.vocab_size)
        require_budget(automaton, max_tokens, start, self.limits)
        tokens_read = max(1, prompt_tokens) + max_tokens - 1  # the last token, EOS, is written but never read
        if model.context_length is not None and tokens_read > model.context_length:
            raise PromptTooLong(prompt_tokens, max_tokens, model.context_length)


def require_budget(
    automaton: Automaton, max_tokens: int, start: Start | None = None, limits: StateLimits = DEFAULT_STATE_LIMITS
) -> None:
    """Raise BudgetTooSmall where no text that short satisfies. Undecided is raised where none is known.

    start  None: the automaton's own
    """
    states, state = host_states(automaton, start, limits)
    # A distance is exact but for a product: a budget below it fails surely, and any other succeeds.
    distance = states.distance_of(state)
    if distance <= max_tokens:
        return
    least, known = distance, None if distance >= UNKNOWN else distance
    if isinstance(automaton, LazyProduct):
        assert start is None or isinstance(start, ProductStart)
        least = (start or automaton.start).at_least
    if least <= max_tokens:
        raise Undecided(known, least, max_tokens)
    raise BudgetTooSmall(known, max_tokens, None if least == UNREACHABLE else least)


def host_states(
    automaton: Automaton, start: Start | None, limits: StateLimits = DEFAULT_STATE_LIMITS
) -> tuple[HostStates, int]:
    """The states of an automaton on the host, and its start's number.

    start  None: the automaton's own
    """
    if isinstance(automaton, LazyProduct):
        states = _product_states(automaton, start, limits)
        return states, states.start
    if isinstance(automaton, PushdownAutomaton):
        assert not isinstance(start, int | ProductStart)
        configurations = Configurations(automaton, start=start, members_max=limits.readings)
        return configurations, configurations.start
    assert start is None or isinstance(start, int)
    return automaton, automaton.start if start is None else start


def _product_states(
    product: LazyProduct, start: Start | None, limits: StateLimits, costs: ProductCosts | None = None
) -> ProductStates:
    assert start is None or isinstance(start, ProductStart)
    return ProductStates(
        product, expansions_max=limits.expansions, members_max=limits.readings, costs=costs, start=start
    )
