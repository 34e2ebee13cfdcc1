"""From a token automaton and a model to answers with their traces. Torch lives only here."""
