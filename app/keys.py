"""Every key of the store and every key of a job, beside what it lives by. The one place that spells them."""

from __future__ import annotations

import hashlib
import re
import secrets

from compiler.spec import Spec, spec_hash

FORMAT = 1  # raise it whenever stored automata of older versions must not be used
HASH = re.compile(r"[0-9a-f]{64}")


def automaton_hash(spec: Spec, fingerprint: str) -> str:
    """The public name of a compiled constraint: SHA-256 in hex of spec, vocabulary and format."""
    return hashlib.sha256(f"{FORMAT}:{spec_hash(spec)}:{fingerprint}".encode()).hexdigest()


def automaton_key(automaton: str) -> str:
    """Store: the codec bytes of a compiled constraint. Lives for `automaton_ttl_s`, renewed by use."""
    return f"abs:dfa:v{FORMAT}:{automaton}"


def compile_job_key(automaton: str) -> str:
    """Broker: equal for equal constraints, so that many callers wait for one compilation."""
    return f"compile:{automaton}"


def request_id() -> str:
    """A fresh id of a request, also the broker's key of a job that nobody shares."""
    return f"abs-{secrets.token_hex(12)}"
