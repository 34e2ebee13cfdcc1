"""How a model's texts end, several tokens ahead, as it was found at load (`endings_found`).

The estimate knows what EOS costs at large. But a model may end its texts by a way of its own: a full stop, then a mark
that it always writes, then EOS; each EOS before that is dear, and the full stop alone shows nothing of what follows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from decoding.arrays import Array, library, like, take
from decoding.beams import Tables

LONGEST = 8
"""So many tokens are foreseen at most between a token and the EOS that it leads to."""


@dataclass(frozen=True, slots=True, eq=False)
class Endings:
    """What is known of the ways to the end. V ids, M = LONGEST, F of the ids, P pairs of ids.

    cost       float64 [M+1, V]  nats to the end of the text after each id, EOS among them, with at most so many tokens
                                 before EOS; inf where it is not known
    then       int64   [M+1, V]  the token that this goes on with, -1 for EOS
    pair       int64   [P]       the id before times V plus the id, ascending: after these two it is known better
    pair_cost  float64 [M+1, P]
    pair_then  int64   [M+1, P]
    first      int64   [F]       the ids that are nearest to an end
    """

    cost: Array
    then: Array
    pair: Array
    pair_cost: Array
    pair_then: Array
    first: Array

    def beside(self, model: Array) -> Endings:
        """The same in the library of `model`, and on its device."""
        parts = {name: getattr(self, name) for name in self.__slots__}
        return replace(self, **{name: like(model, part) for name, part in parts.items()})

    def nats(self, before: Array, token: Array, state: Array, tables: Tables, budget_after: int) -> Array:
        """Nats to the end after each of these tokens, float64 [N], inf where it is not known.

        before        int64 [N]  the token before each; 0 where there is none, so that a pair is believed that is none
        state         int64 [N]  the automaton's after each; a way is none if its next token leads away from acceptance
        budget_after  tokens that may still be written, EOS among them
        """
        cost, then = self._ways(before, token, budget_after)
        stays = take(tables.distance, tables.after(state, then.clip(min=0))) == 1
        return library(state).where((then < 0) | stays, cost, float("inf"))

    def next(self, before: Array, token: Array, budget_after: int) -> Array:
        """The token that the way to the end goes on with after each of these: int64 [N], -1 where it is EOS or none."""
        return self._ways(before, token, budget_after)[1]

    def _ways(self, before: Array, token: Array, budget_after: int) -> tuple[Array, Array]:
        """Nats to the end and the next token, whatever the constraint says: float64 [N], int64 [N]."""
        xp, more = library(token), max(0, min(LONGEST, budget_after - 1))
        cost, then = take(self.cost[more], token), take(self.then[more], token)
        if len(self.pair):
            key = before * self.cost.shape[1] + token
            place = xp.searchsorted(self.pair, key).clip(max=len(self.pair) - 1)
            known = xp.where(take(self.pair, place) == key, take(self.pair_cost[more], place), float("inf"))
            then = xp.where(known < cost, take(self.pair_then[more], place), then)
            cost = xp.where(known < cost, known, cost)
        return cost, then
