"""From a constraint to a token automaton. Numpy only: no torch, no web, no Redis."""
