"""All systems by name: the class and the environment of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / ".cache" / "systems"  # one folder each, made by `environments.py`
REQUIREMENTS = HERE / "requirements"  # one file each, named after its environment


@dataclass(frozen=True, slots=True)
class Entry:
    """A system.

    class_path   MODULE:CLASS
    environment  name of its environment; empty for the environment of this process
    options      keyword arguments of the class
    """

    class_path: str
    environment: str = ""
    options: Mapping[str, object] = field(default_factory=dict)


_HERE = "benchmarks.systems"
SYSTEMS: dict[str, Entry] = {
    "ours, 16 beams": Entry(f"{_HERE}.ours:OurSearch", options={"beams": 16}),
    "ours, 1 beam": Entry(f"{_HERE}.ours:OurSearch", options={"beams": 1}),
    "ours, abs, 16 beams": Entry(f"{_HERE}.ours:OurSearch", options={"beams": 16, "algorithm": "abs"}),
    "ours, 64 beams": Entry(f"{_HERE}.ours:OurSearch", options={"beams": 64}),
    "no constraint, 1 beam": Entry(f"{_HERE}.transformers_systems:Unconstrained", options={"beams": 1}),
    "no constraint, 16 beams": Entry(f"{_HERE}.transformers_systems:Unconstrained", options={"beams": 16}),
    "HMM, 256 states, 16 beams": Entry(f"{_HERE}.hmm:HmmSearch", options={"beams": 16, "states": 256}),
    "HMM, 1,024 states, 16 beams": Entry(f"{_HERE}.hmm:HmmSearch", options={"beams": 16, "states": 1024}),
    "constrained beams, 16": Entry(f"{_HERE}.transformers_systems:ForcedPhrases", "phrases", {"beams": 16}),
    "XGrammar": Entry(f"{_HERE}.xgrammar:XGrammar", "xgrammar"),
    "outlines-core": Entry(f"{_HERE}.outlines:OutlinesCore", "outlines"),
    "llguidance": Entry(f"{_HERE}.llguidance:LLGuidance", "llguidance"),
    "Outlines": Entry(f"{_HERE}.outlines:Outlines", "outlines"),
    "guidance": Entry(f"{_HERE}.guidance:Guidance", "guidance"),
    "LM Format Enforcer": Entry(f"{_HERE}.format_enforcer:FormatEnforcer", "format-enforcer"),
    "LM Format Enforcer, 16 beams": Entry(f"{_HERE}.format_enforcer:FormatEnforcer", "format-enforcer", {"beams": 16}),
}
