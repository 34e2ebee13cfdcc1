"""Agents in the domains of tau-bench: under policies, under masks, free. It uses one core.

    python -m benchmarks.policies --data CHECKOUT [--conversations 200]

An agent has a number of calls. It proposes events until one is allowed: what it wants at first, then any.
The conversation ends when the user leaves after a reply, or when no call is left. "Masks" forbid what breaks a rule for
good, as engines do that look one step ahead: they know neither calls nor obligations. Writes results/policies.json and
RESULTS.md.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.policies.domains import RULES, Domain, RandomArguments, Session, read_domain
from benchmarks.report import write_run
from benchmarks.runs import Row, parser_of
from compiler.automata import live_states
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.policies import Event, EventKind, PolicyAutomaton, read_policy

System = Literal["free", "masks", "ours"]
Agent = Literal["random", "adversarial"]
TRIES_MAX = 200  # events that an agent proposes before it takes any, and as many after that
LEAVES = 0.3  # the chance that the user leaves after a reply
REPLY = Event(EventKind.REPLY)


@dataclass
class Conversation:
    """A conversation as it goes on. `stuck` says that no event was allowed, or that none was found."""

    events: list[Event] = field(default_factory=list)
    decisions_ms: list[float] = field(default_factory=list)
    stuck: bool = False


def read_rules_of(domain: Domain) -> PolicyAutomaton:
    """The policy of a domain."""
    return read_policy(RULES[domain.name], domain.tools, (), ResourceGuard(DEFAULT_LIMITS))


def play(
    domain: Domain, policy: PolicyAutomaton, system: System, agent: Agent, *, calls: int, seed: int
) -> Conversation:
    """One conversation. The seed decides what the agent proposes, whatever system decides."""
    rng, session, conversation = random.Random(seed), domain.session(), Conversation()
    arguments = RandomArguments(session, rng)
    left = calls
    while True:
        chosen = _next_event(conversation, policy, system, (agent, domain, arguments, rng), left=left)
        if chosen is None:
            conversation.stuck = True
            return conversation
        conversation.events.append(chosen)
        if chosen.kind is EventKind.REPLY:
            if rng.random() < LEAVES or left == 0:
                return conversation
            continue
        left -= 1
        conversation.events.append(_answered(session, chosen))
        if left == 0 and system != "ours":  # without distances nothing keeps the last word for a reply
            conversation.events.append(REPLY)
            return conversation


def _answered(session: Session, made: Event) -> Event:
    return Event(EventKind.RESULT, made.tool, session.call(made.tool, made.value))


def _next_event(
    conversation: Conversation, policy: PolicyAutomaton, system: System,
    proposer: tuple[Agent, Domain, RandomArguments, random.Random], *, left: int,
) -> Event | None:
    """The first proposed event that the system allows. None if it allows none of many."""
    started = time.perf_counter()
    state = policy.state(conversation.events)
    following = policy.next_events(state, left) if system == "ours" else None
    if following is not None:
        conversation.decisions_ms.append((time.perf_counter() - started) * 1000)
    if following is not None and not following.reply and not following.arguments:
        return None
    live = live_states(policy.automaton)
    agent, domain, arguments, rng = proposer
    for attempt in range(2 * TRIES_MAX):
        # As a model under a mask: where it does not get what it wants, it takes what is left.
        proposed = _proposal(agent if attempt < TRIES_MAX else "random", domain, arguments, rng, left=left)
        if system == "free":
            return proposed
        if following is not None and policy.allows(state, proposed, left):
            return proposed
        if following is None and live[policy.automaton.step(state, policy.letters.number(proposed))]:
            return proposed
    return None


def _proposal(
    agent: Agent, domain: Domain, arguments: RandomArguments, rng: random.Random, *, left: int
) -> Event:
    """What an agent wants. The adversarial one wants updates, transfers and replies, and no look-ups."""
    tools = sorted(domain.tools)
    if agent == "adversarial" and rng.random() < 0.8:
        tools = [tool for tool in tools if not tool.startswith(("get_", "find_", "search_", "list_", "think", "calc"))]
    if left == 0 or rng.random() < 0.3:
        return REPLY
    tool = rng.choice(tools)
    return Event(EventKind.CALL, tool, arguments.draw(domain.tools[tool]))


def figures(domain: Domain, policy: PolicyAutomaton, system: System, agent: Agent, *, args: Any) -> Row:
    """How many conversations keep the rules, and how fast decisions are."""
    played = [
        play(domain, policy, system, agent, calls=args.calls, seed=args.seed + number)
        for number in range(args.conversations)
    ]
    broken = [policy.violations(each.events, ended=True) for each in played]
    times = [ms for each in played for ms in each.decisions_ms]
    return {
        "domain": domain.name, "agent": agent, "system": system, "conversations": len(played),
        "conform": sum(not found and not each.stuck for found, each in zip(broken, played, strict=True)),
        "unmet": sum(any(rule.event is None for rule in found) for found in broken),
        "broken": sum(any(rule.event is not None for rule in found) for found in broken),
        "stuck": sum(each.stuck for each in played),
        "calls": statistics.mean(sum(event.kind is EventKind.CALL for event in each.events) for each in played),
        "decision_ms": {"p50": statistics.median(times), "p99": statistics.quantiles(times, n=100)[98]}
        if times else None,
    }  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__, shared=False)
    parser.add_argument("--data", type=Path, required=True, help="a checkout of sierra-research/tau-bench")
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rows, sizes = [], {}
    for name in RULES:
        domain = read_domain(args.data, name)
        started = time.process_time()
        policy = read_rules_of(domain)
        sizes[name] = {
            "rules": len(policy.rules), "tools": len(domain.tools), "states": policy.automaton.states,
            "letters": len(policy.letters.letters), "compile_s": round(time.process_time() - started, 3),
            "calls_needed": int(policy.distance[policy.automaton.start]),
        }  # fmt: skip
        for agent in get_args(Agent):
            for system in get_args(System):
                rows.append(figures(domain, policy, system, agent, args=args))
                print(rows[-1], flush=True)
    write_run("policies", {"rows": rows, "sizes": sizes, "calls": args.calls})


if __name__ == "__main__":
    main()
