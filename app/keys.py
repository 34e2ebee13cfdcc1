"""Every key of the store and every key of a job, beside what it lives by. The one place that spells them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Final

from compiler.canonical import spec_hash
from compiler.limits import DEFAULT_LIMITS, Limits
from compiler.spec import Spec

FORMAT = 2  # raise it whenever stored automata of older versions must not be used
HASH = re.compile(r"[0-9a-f]{64}")
UNMET_TTL_S: Final[Mapping[str, float]] = {  # for how long which failure of a compilation is remembered
    "SpecUnsatisfiable": 86_400.0,
    "SpecUnspellable": 86_400.0,
    "LimitExceeded": 600.0,  # of time and memory too, which another try may keep within
}


def automaton_hash(spec: Spec, fingerprint: str, limits: Limits = DEFAULT_LIMITS) -> str:
    """The public name of a compiled constraint: SHA-256 in hex of its meaning, the vocabulary and the format.

    Raises what reading the constraint's formulas raises.
    """
    return hashlib.sha256(f"{FORMAT}:{spec_hash(spec, limits)}:{fingerprint}".encode()).hexdigest()


def automaton_key(automaton: str) -> str:
    """Store: the codec bytes of a compiled constraint. Lives for `automaton_ttl_s`, renewed by use."""
    return f"abs:dfa:v{FORMAT}:{automaton}"


def explanation_key(automaton: str) -> str:
    """Store: the sealed ExplainResult of a compiled constraint. Lives for `automaton_ttl_s`, renewed by use."""
    return f"abs:explanation:v{FORMAT}:{automaton}"


def probe_key(process: str) -> str:
    """Store: what a process writes and reads back to see whether the store works. Lives for some seconds."""
    return f"abs:probe:{process}"


def unmet_key(automaton: str, spec: Mapping[str, object], limits: Limits) -> str:
    """Store: the sealed Failure of a compilation under these limits. Lives for its `UNMET_TTL_S`.

    spec  as it was written: the failure quotes it, and may not be told to whoever wrote the same in other words
    """
    whole = json.dumps([spec, dataclasses.asdict(limits)], sort_keys=True).encode()
    return f"abs:unmet:v{FORMAT}:{automaton}:{hashlib.sha256(whole).hexdigest()}"


def compile_job_key(automaton: str) -> str:
    """Broker: equal for equal constraints, so that many callers wait for one compilation."""
    return f"compile:{automaton}"


def explain_job_key(automaton: str) -> str:
    """Broker: many callers wait for one explanation."""
    return f"explain:{automaton}"


def idempotent_job_key(owner: str, route: str, given: str) -> str:
    """Broker: requests of one caller with the same Idempotency-Key lead to one job. Kept for `idempotency_ttl_s`."""
    whole = json.dumps([owner, route, given]).encode()
    return f"idem:{hashlib.sha256(whole).hexdigest()}"


def request_id() -> str:
    """A fresh id of a request, also the broker's key of a job that nobody shares."""
    return f"abs-{secrets.token_hex(12)}"
