"""A constraint as the searches of one model use it: made once, then shared by every request that names it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from compiler.token_automaton import TokenAutomaton
from decoding.beams import Tables
from decoding.endings import Endings
from decoding.estimate import Prior, Reals, class_costs, cost_to_go
from decoding.forced import Forced, Pieces
from decoding.texts import Texts


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """An automaton with its tables on the device.

    estimate  float64 [S], nats from each state to acceptance under a prior of the model's; without it a token on the
              way to acceptance counts alike wherever it stands
    class_cost  float64 [C] on the host, what each class of tokens costs under that prior; with both, and where the
              automaton is not too large, a search learns on its way what they cost in their places
    end_cost  float64 [V], as in the prior; with it, and an estimate, rows are told apart by how soon they may end
    endings   as in the prior; what is known of the ways to the end tells them apart, too
    texts     of the vocabulary, on the device; with them, of the rows that say the same only the best is kept
    forced    what each state dictates; without it nothing is taken for dictated
    """

    automaton: TokenAutomaton
    tables: Tables
    estimate: Tensor | None = None
    class_cost: Reals | None = None
    end_cost: Tensor | None = None
    texts: Texts | None = None
    forced: Forced | None = None
    endings: Endings | None = None

    @classmethod
    def prepare(
        cls, automaton: TokenAutomaton, device: torch.device, *, prior: Prior | None = None,
        texts: Texts | None = None, pieces: Pieces | None = None,
    ) -> Constraint:
        """Copies the automaton's arrays to the device; a few milliseconds for 50,000 ids, more for an estimate.

        prior  from `estimate.token_prior`
        """
        tables = Tables.from_automaton(automaton, device)
        forced = Forced(automaton, pieces) if pieces is not None else None
        estimate = None if prior is None else cost_to_go(automaton, prior.log_prob)
        if prior is None or estimate is None:
            return cls(automaton, tables, texts=texts, forced=forced)
        class_cost = class_costs(automaton, prior.log_prob)
        end_cost = prior.end_cost.to(device)
        endings = None if prior.endings is None else prior.endings.beside(tables.distance)
        return cls(automaton, tables, estimate.to(device), class_cost, end_cost, texts, forced, endings)
