"""Agents of tau-bench and tau2: under policies, under masks, free. It uses one core.

    python -m benchmarks.policies --data CHECKOUT --tau2 CHECKOUT [--conversations 200] [--models FOLDER ...]

An agent has a number of calls. It proposes events until one is allowed: what it wants at first, then any.
The conversation ends when the user leaves after a reply, or when no call is left. "Masks" forbid what breaks a rule for
good, as engines do that look one step ahead: they know neither calls nor obligations. Writes results/policies.json and
RESULTS.md.

In the last part a service writes the events. `--served-only` measures it alone and keeps the other figures.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from app.settings import BUILT_IN_MODEL
from benchmarks.policies.agents import REPLY, EventModel, ModelAgent, RandomAgent, Wishes
from benchmarks.policies.domains import RULES, Domain, RandomArguments, Session
from benchmarks.policies.service import policy_service, served_figures
from benchmarks.policies.tau import read_domain
from benchmarks.policies.tau2 import read_tau2_domain
from benchmarks.report import write_run
from benchmarks.runs import RESULTS_DIRECTORY, Row, about, commit_of, parser_of
from compiler.automata import live_states
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.policies import Event, EventKind, PolicyAutomaton, read_policy

System = Literal["free", "masks", "ours"]
Agent = Literal["random", "adversarial"] | EventModel
TRIES_MAX = 200  # events that an agent proposes before it takes any, and as many after that
LEAVES = 0.3  # the chance that the user leaves after a reply


@dataclass
class Conversation:
    """A conversation as it goes on. `stuck` says that no event was allowed, or that none was found."""

    events: list[Event] = field(default_factory=list)
    decisions_ms: list[float] = field(default_factory=list)
    stuck: bool = False


def read_rules_of(domain: Domain) -> PolicyAutomaton:
    """The policy of a domain."""
    return read_policy(domain.rules, domain.tools, (), ResourceGuard(DEFAULT_LIMITS))


def agent_of(agent: Agent, domain: Domain, rng: random.Random) -> Wishes:
    """An agent of one conversation."""
    if isinstance(agent, EventModel):
        return ModelAgent(agent, domain, rng)
    return RandomAgent(domain, rng, adversarial=agent == "adversarial")


def play(
    domain: Domain, policy: PolicyAutomaton, system: System, agent: Agent, *, calls: int, seed: int
) -> Conversation:
    """One conversation. The seed decides what the agent proposes, whatever system decides."""
    rng, session, conversation = random.Random(seed), domain.session(), Conversation()
    arguments, wishes = RandomArguments(session, rng), agent_of(agent, domain, rng)
    left = calls
    while True:
        proposals = _proposals(wishes, conversation, domain, (arguments, rng), left=left)
        chosen = _next_event(conversation, policy, system, proposals, left=left)
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


def _proposals(
    wishes: Wishes, conversation: Conversation, domain: Domain, drawing: tuple[RandomArguments, random.Random], *,
    left: int,
) -> Iterator[Event]:
    """What the agent proposes: what it wants, then any event."""
    arguments, rng = drawing
    for proposer in (wishes, RandomAgent(domain, rng)):
        proposed = proposer(conversation.events, left, arguments)
        for _ in range(TRIES_MAX):
            yield next(proposed)


def _next_event(
    conversation: Conversation, policy: PolicyAutomaton, system: System, proposals: Iterator[Event], *, left: int
) -> Event | None:
    """The first proposed event that the system allows. None if it allows none of many."""
    if system == "free":
        return next(proposals)
    started = time.perf_counter()
    state = policy.state(conversation.events)
    following = policy.next_events(state, left) if system == "ours" else None
    conversation.decisions_ms.append((time.perf_counter() - started) * 1000)
    if following is not None and not following.reply and not following.arguments:
        return None
    live = live_states(policy.automaton)
    for proposed in proposals:
        if following is not None and policy.allows(state, proposed, left):
            return proposed
        if following is None and live[policy.automaton.step(state, policy.letters.number(proposed))]:
            return proposed
    return None


def figures(domain: Domain, policy: PolicyAutomaton, system: System, agent: Agent, *, args: Any) -> Row:
    """How many conversations keep the rules, and how fast decisions are."""
    model = agent if isinstance(agent, EventModel) else None
    played = [
        play(domain, policy, system, agent, calls=args.calls, seed=args.seed + number)
        for number in range(args.conversations if model is None else args.model_conversations)
    ]
    broken = [policy.violations(each.events, ended=True) for each in played]
    times = [ms for each in played for ms in each.decisions_ms]
    return {
        "domain": domain.name, "agent": agent if model is None else model.name, "system": system,
        "conversations": len(played),
        "conform": sum(not found and not each.stuck for found, each in zip(broken, played, strict=True)),
        "unmet": sum(any(rule.event is None for rule in found) for found in broken),
        "broken": sum(any(rule.event is not None for rule in found) for found in broken),
        "stuck": sum(each.stuck for each in played),
        "calls": statistics.mean(sum(event.kind is EventKind.CALL for event in each.events) for each in played),
        "decision_ms": {"p50": statistics.median(times), "p99": statistics.quantiles(times, n=100)[98]}
        if times else None,
        "model_ms": None if model is None else statistics.median(model.ms) if model.ms else None,
    }  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__, shared=False, threads=1)
    parser.add_argument("--data", type=Path, required=True, help="a checkout of sierra-research/tau-bench")
    parser.add_argument("--tau2", type=Path, required=True, help="a checkout of sierra-research/tau2-bench")
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--models", nargs="*", type=Path, default=[Path(BUILT_IN_MODEL)], help="folders of models")
    parser.add_argument("--model-conversations", type=int, default=50, help="conversations of each model")
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--served-conversations", type=int, default=5, help="conversations with the service")
    parser.add_argument("--served-only", action="store_true", help="measure the service alone")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    domains = [read_domain(args.data, name) for name in RULES]
    domains += [read_tau2_domain(args.tau2, name, args.data) for name in RULES]
    if args.served_only:
        stored = json.loads((RESULTS_DIRECTORY / "policies.json").read_text(encoding="utf-8"))
        write_run("policies", stored | {"served": served(domains, args)})
    else:
        write_run("policies", unserved(domains, args) | {"served": served(domains, args)})


def served(domains: list[Domain], args: Any) -> Row:
    """The figures of the service, with the run's date and machine."""
    options = {"conversations": args.served_conversations, "calls": args.calls, "seed": args.seed}
    rows = []
    with policy_service(args.threads) as http:
        for domain in domains:
            rows.append(served_figures(http, domain, read_rules_of(domain), **options))
            print(rows[-1], flush=True)
    return about() | {"rows": rows, "threads": args.threads}


def unserved(domains: list[Domain], args: Any) -> Row:
    """The figures of all agents and systems, without a service."""
    agents: list[Agent] = ["random", "adversarial", *map(EventModel, args.models)]
    rows, sizes = [], {}
    for domain in domains:
        started = time.process_time()
        policy = read_rules_of(domain)
        sizes[domain.name] = {
            "rules": len(policy.rules), "tools": len(domain.tools), "states": policy.automaton.states,
            "letters": len(policy.letters.letters), "compile_s": round(time.process_time() - started, 3),
            "calls_needed": int(policy.distance[policy.automaton.start]),
        }  # fmt: skip
        for agent in agents:
            for system in get_args(System):
                rows.append(figures(domain, policy, system, agent, args=args))
                print(rows[-1], flush=True)
    commits = {"tau_bench": commit_of(args.data), "tau2": commit_of(args.tau2)}
    return {"rows": rows, "sizes": sizes, "calls": args.calls, "commits": commits, "threads": args.threads}


if __name__ == "__main__":
    main()
