"""Turns a token automaton and a language model into satisfying answers.

`search` finds the best answers, `sampling` draws random ones, `label_decoding` reads a matrix of log-probs, and
`label_scoring` searches labels with a scorer, which `scorer_models` loads.
`engine` batches the generations of many requests over one `model`, and `replay` traces a finished answer step by step.
`prepared_constraint` holds what all requests for one constraint share, `options` what a request may set. Torch is
imported only in this package; its modules are imported one by one, so that `options` and `errors` stay light.
"""

__all__ = [
    "alternatives", "engine", "errors", "forced_tokens", "generation", "heuristic", "label_decoding",
    "label_scoring", "logits_processor", "model", "options", "penalties", "prepared_constraint", "replay", "sampling",
    "scorer_models", "search",
]  # fmt: skip
