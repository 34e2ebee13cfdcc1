from __future__ import annotations

from compiler.automata import everything
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pushdown import Configurations, Grammar, build_machine, call, lift_to_tokens
from compiler.regex import Alternation, Chars, Concat, Repeat, literal_node
from compiler.vocab import Vocabulary


def test_a_state_that_leaves_before_each_character_is_not_dead() -> None:
    guard = ResourceGuard(DEFAULT_LIMITS)
    any_character = Chars(everything().minterms.charset([0]))
    behind_a = Concat((literal_node("a", False), any_character, Repeat(any_character, 0, None)))
    further = Alternation((any_character, literal_node(".!", False)))
    grammar = Grammar(("s", "t"), (Concat((call(1), further)), behind_a))
    machine = build_machine(grammar, guard, inline_growth_max=0)
    tokens = Vocabulary((b"a", b"b", b".", b"a.", b"b.", None), (5,))
    states = Configurations(lift_to_tokens(machine, tokens, guard))
    assert states.distance_of(states.run([0, 3])) == states.distance_of(states.run([0, 0, 2])) == 1
    assert states.members(states.run([0, 3])) == states.members(states.run([0, 0, 2]))
