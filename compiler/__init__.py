"""Compiles a constraint to a token automaton.

`spec` reads the constraint. `pipeline` compiles it: `compile_text` to an automaton over texts, `compile_spec` to one
over a model's vocabulary. The result is an `artifact`, which `codec` writes and reads as signed bytes. `text` checks
finished texts, and `diagnostics` explains a constraint or its conflicts. The package needs no torch, no web framework
and no Redis; its modules are imported one by one, so that each process loads only what it uses.
"""

__all__ = [
    "artifact", "codec", "diagnostics", "engines", "errors", "lifting", "limits", "pipeline", "spec", "text", "vocab",
]  # fmt: skip
