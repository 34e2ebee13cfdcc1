"""A context-free constraint over texts. Its parser shares nothing with the automaton over tokens.

Only the place of a violation is found with the distances of an automaton over bytes.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from compiler.lifting import UNREACHABLE
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.pushdown import (
    ACCEPTED,
    ACCEPTED_PENDING,
    BOTTOM,
    END,
    NOWHERE,
    Configurations,
    PushdownAutomaton,
    PushdownMachine,
    Recognizer,
    Stacks,
    counting_states,
    lift_to_tokens,
    with_leading_space,
)
from compiler.vocab import byte_vocabulary

STACK_SHOWN_MAX = 64  # rules
_BYTES = byte_vocabulary(checks_texts=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class PushdownText:
    """A constraint over texts that a pushdown machine decides.

    machine       its own start reads the optional space before an answer
    text_start    the state an answer is read from
    strips_space  whether one leading space is no part of an answer
    lifted        the automaton over bytes, where it was made already
    Raises ValueError where text_start names no state.
    """

    kind: ClassVar[Literal["grammar"]] = "grammar"
    letter_names: ClassVar[tuple[tuple[str, ...] | None, ...]] = ()  # no letters are read

    machine: PushdownMachine
    text_start: int
    strips_space: bool
    limits: Limits = DEFAULT_LIMITS
    lifted: PushdownAutomaton | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.text_start < self.machine.states or self.machine.eager[self.text_start]:
            raise ValueError("text_start names a state that reads something")

    @functools.cached_property
    def byte_automaton(self) -> PushdownAutomaton:
        """The same constraint over single bytes. Ids 0..255 are the bytes, and 256 is EOS. It is built on first use."""
        return self.lifted or lift_to_tokens(self.machine, _BYTES, ResourceGuard(self.limits))

    @property
    def existing_byte_automaton(self) -> PushdownAutomaton | None:
        """The byte automaton if it has been built. None before its first use."""
        return vars(self).get("byte_automaton", self.lifted)

    def display_state_of(self, control: int) -> int | None:
        """The state that is shown for a control state. None after the end, and where nothing continues."""
        if control >= self.machine.states:  # one of those that count the tokens of a budget
            return int(self._counted[control - self.machine.states])
        return control if control >= 0 else None

    @functools.cached_property
    def _counted(self) -> np.ndarray:
        """The control states that those which count tokens are made of."""
        return np.repeat(np.arange(self.machine.states), counting_states(self.machine))

    def reader(self) -> StackReader:
        """Reads a text from its beginning."""
        return StackReader(self, Recognizer(self.machine, self.text_start, ResourceGuard(self.limits)))

    @functools.cached_property
    def symbol_codes(self) -> tuple[int, ...]:
        """The code of the rule that goes on behind each stack symbol."""
        behind = self.machine.resume.max(axis=1, initial=NOWHERE)  # all of a symbol are states of one rule
        return tuple(self.machine.code[behind].tolist())

    def violation(self, text: str) -> int:
        """The offset after which a text cannot satisfy any more. It must not satisfy as it is."""
        recognizer = Recognizer(self.machine, self.text_start, ResourceGuard(self.limits))
        alive = _Alive(recognizer, self.byte_automaton)
        for offset, character in enumerate(text):
            for byte in character.encode():
                recognizer.read(byte)
            if not alive():
                return offset
        return len(text)

    def after(self, tokens: PushdownAutomaton, text: str) -> tuple[Stacks, int]:
        """The state of the token automaton after a text.

        Also how many of its characters tokens can continue: the state means nothing where that is not the whole text.
        Raises LimitExceeded over `check_steps_max`.
        """
        guard, steps, configurations = ResourceGuard(self.limits), 0, Configurations(tokens)
        stacks = configurations.stacks
        met = [self.machine.silently({(self.text_start, BOTTOM)}, stacks)]
        for character in text:
            after = met[-1]
            for byte in character.encode():
                after = self.machine.silently(self.machine.after(after, byte, stacks), stacks)
                steps += 1 + len(after)
                guard.check("check_steps_max", steps)
            if not after:
                break
            met.append(after)
        # What tokens cannot continue once they never can again.
        state = configurations.state_of(met[-1])
        while len(met) > 1 and configurations.distance_of(state) == UNREACHABLE:
            met.pop()
            state = configurations.state_of(met[-1])
        return configurations.stacks_of(state), len(met) - 1


def pushdown_text(machine: PushdownMachine, strips_space: bool, guard: ResourceGuard) -> PushdownText:
    """The texts of a machine. With `strips_space` one space may stand before an answer."""
    start, machine = machine.start, with_leading_space(machine) if strips_space else machine
    return PushdownText(machine=machine, text_start=start, strips_space=strips_space, limits=guard.limits)


class StackReader:
    """Reads bytes through a pushdown machine."""

    def __init__(self, text: PushdownText, recognizer: Recognizer) -> None:
        self._text, self._recognizer = text, recognizer
        self._before_end = self._state()

    @property
    def state(self) -> int:
        """The least control state; after the end, the one before it. NOWHERE where nothing continues."""
        return self._before_end

    @property
    def stack(self) -> tuple[str, ...]:
        """The open rules of one reading, the innermost last. There are at most STACK_SHOWN_MAX, and never the root."""
        recognizer, machine = self._recognizer, self._text.machine
        state, node = min(recognizer.configurations, default=(ACCEPTED, BOTTOM))
        codes = [] if state == ACCEPTED else [int(machine.code[state])]
        while node != BOTTOM and len(codes) < STACK_SHOWN_MAX:
            codes.append(self._text.symbol_codes[recognizer.symbol[node]])
            node = min(recognizer.below[node])
        return tuple(machine.rules[code] for code in reversed(codes) if code != machine.start_code)

    @property
    def accepting(self) -> bool:
        """Whether the text was accepted at its end."""
        return self._recognizer.accepted

    def read(self, data: bytes) -> list[int]:
        """Read bytes. No letters are emitted."""
        for byte in data:
            self._recognizer.read(byte)
        self._before_end = self._state()
        return []

    def end(self) -> list[int] | None:
        """Read the end of the text. None where it may not end here."""
        self._recognizer.read(END)
        return [] if self.accepting else None

    def _state(self) -> int:
        return min((state for state, _ in self._recognizer.configurations), default=NOWHERE)


class _Alive:
    """Whether what a recognizer has read can be continued and accepted."""

    def __init__(self, recognizer: Recognizer, over_bytes: PushdownAutomaton) -> None:
        self._recognizer, tables, costs = recognizer, over_bytes.tables, over_bytes.exit_costs
        # The pendings with which a control state may be left, and by symbol those that lead from one to another.
        self._within, self._behind = defaultdict[int, set[int]](set), defaultdict[int, dict[int, set[int]]](dict)
        for state in range(tables.states):
            self._within[state] = costs.landings.pendings_of(state)
        entries = zip(tables.entry_symbol, tables.entry_pending, tables.entry_arrival, strict=True)
        for symbol, entered, arrival in entries:
            self._behind[int(symbol)][int(entered)] = costs.arrivals.pendings_of(int(arrival))
        self._nodes = [{ACCEPTED_PENDING}]  # by node, the pendings from which acceptance can be reached

    def __call__(self) -> bool:
        recognizer = self._recognizer
        # A node stands behind those below it.
        for node in range(len(self._nodes), len(recognizer.symbol)):
            below = set[int]().union(*(self._nodes[each] for each in recognizer.below[node]))
            behind = self._behind[recognizer.symbol[node]].items()
            self._nodes.append({entered for entered, left in behind if not left.isdisjoint(below)})
        return any(
            state == ACCEPTED or not self._within[state].isdisjoint(self._nodes[node])
            for state, node in recognizer.configurations
        )
