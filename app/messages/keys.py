"""The keys of the store, of jobs and of counters. Each stands beside its time to live.

The one place that spells them. What the broker keeps on a server has names of its own, inside its scripts alone: the
table in app/broker/redis/lua/README.md lists them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
from collections.abc import Mapping

from compiler.limits import DEFAULT_LIMITS, Limits
from compiler.spec import Spec, spec_hash

KEY_PREFIX = "{abs}:"  # of all keys on a server; the braces keep them on one node of a cluster
FORMAT = 11  # raise it whenever stored automata of older versions must not be used
HASH = re.compile(r"[0-9a-f]{64}")


def automaton_hash(spec: Spec, fingerprint: str, limits: Limits = DEFAULT_LIMITS) -> str:
    """The public name of a compiled constraint: SHA-256 in hex of its meaning, the vocabulary and the format.

    Raises what reading the constraint's formulas raises.
    """
    # A token automaton fits one vocabulary only, so the fingerprint is part of the name.
    return hashlib.sha256(f"{FORMAT}:{spec_hash(spec, limits)}:{fingerprint}".encode()).hexdigest()


def automaton_key(automaton: str) -> str:
    """Store: the codec bytes of a compiled constraint. Lives for `automaton_ttl_s`, renewed by use."""
    return f"{KEY_PREFIX}dfa:v{FORMAT}:{automaton}"


def explanation_key(automaton: str) -> str:
    """Store: the signed ExplainJobResult of a compiled constraint. Lives for `automaton_ttl_s`, renewed by use."""
    return f"{KEY_PREFIX}explanation:v{FORMAT}:{automaton}"


def probe_key(process: str) -> str:
    """Store: a value that a process writes and reads as a check. Lives for some seconds."""
    return f"{KEY_PREFIX}probe:{process}"


def failure_key(automaton: str, spec: Mapping[str, object], limits: Limits) -> str:
    """Store: the signed Failure of a compilation under these limits. Lives for its `ErrorFacts.cache_s`.

    spec  the constraint as written. The failure quotes it, so it does not fit the same constraint in other words
    """
    # A constraint that is too large for these limits may compile under others. The prefix keeps its former name.
    text = json.dumps([spec, dataclasses.asdict(limits)], sort_keys=True).encode()
    return f"{KEY_PREFIX}unmet:v{FORMAT}:{automaton}:{hashlib.sha256(text).hexdigest()}"


def compile_job_key(automaton: str) -> str:
    """Broker: the compilation of a constraint.

    Equal constraints have equal keys, many callers wait for one compilation.
    """
    return f"compile:{automaton}"


def explain_job_key(automaton: str) -> str:
    """Broker: many callers wait for one explanation."""
    return f"explain:{automaton}"


def idempotent_job_key(owner: str, route: str, key: str) -> str:
    """Broker: the job of a caller's Idempotency-Key.

    All requests with that key lead to it. Kept for `idempotency_ttl_s`.
    """
    # JSON keeps the parts apart: joined strings of different parts could be equal.
    text = json.dumps([owner, route, key]).encode()
    return f"idem:{hashlib.sha256(text).hexdigest()}"


def store_share_key(owner: str) -> str:
    """Store: which keys a caller's share holds, and how many bytes. Lives as long as the last of them."""
    return f"{KEY_PREFIX}kept:{owner}"


def window_key(window: str, owner: str) -> str:
    """Counts: times of a caller's requests of a kind within a minute. Lives for a minute."""
    return f"{KEY_PREFIX}limits:{window}:{owner}"


def tokens_key(owner: str) -> str:
    """Counts: a caller's beam-tokens of this minute and the last. Lives for two minutes."""
    return f"{KEY_PREFIX}limits:tokens:{owner}"


def charge_key(job_id: str) -> str:
    """Counts: that a job has been charged for. Lives for `idempotency_ttl_s`."""
    return f"{KEY_PREFIX}limits:charged:{job_id}"


def slots_key(owner: str) -> str:
    """Counts: a caller's running requests, by the ends of their leases. Lives for a lease."""
    return f"{KEY_PREFIX}running:{owner}"


def request_id() -> str:
    """A fresh id of a request. It is also the broker's key of a job that is not shared."""
    # 96 random bits: ids of different processes do not collide.
    return f"abs-{secrets.token_hex(12)}"
