"""Every key of the store and every key of a job, beside what it lives by. The one place that spells them."""

from __future__ import annotations

import hashlib
import re
import secrets

from compiler.canonical import spec_hash
from compiler.limits import DEFAULT_LIMITS, Limits
from compiler.spec import Spec

FORMAT = 2  # raise it whenever stored automata of older versions must not be used
HASH = re.compile(r"[0-9a-f]{64}")


def automaton_hash(spec: Spec, fingerprint: str, limits: Limits = DEFAULT_LIMITS) -> str:
    """The public name of a compiled constraint: SHA-256 in hex of its meaning, the vocabulary and the format.

    Raises what reading the constraint's formulas raises.
    """
    return hashlib.sha256(f"{FORMAT}:{spec_hash(spec, limits)}:{fingerprint}".encode()).hexdigest()


def automaton_key(automaton: str) -> str:
    """Store: the codec bytes of a compiled constraint. Lives for `automaton_ttl_s`, renewed by use."""
    return f"abs:dfa:v{FORMAT}:{automaton}"


def explanation_key(automaton: str) -> str:
    """Store: the ExplainResult of a compiled constraint. Lives for `automaton_ttl_s`, renewed by use."""
    return f"abs:explanation:v{FORMAT}:{automaton}"


def compile_job_key(automaton: str) -> str:
    """Broker: equal for equal constraints, so that many callers wait for one compilation."""
    return f"compile:{automaton}"


def explain_job_key(automaton: str) -> str:
    """Broker: many callers wait for one explanation."""
    return f"explain:{automaton}"


def request_id() -> str:
    """A fresh id of a request, also the broker's key of a job that nobody shares."""
    return f"abs-{secrets.token_hex(12)}"
