"""Measures engines on context-free grammars: `python -m benchmarks.grammars`.

`suite` has the grammars, each with texts; `measure` runs one grammar in a fork. `truncation` cuts generations at
multiples of the least budget, `growth` measures larger and larger grammars, texts and combinations, `beams` compares
beam search under a grammar with beam search under a regular constraint, and `judges` has parsers of other systems judge
our answers to the grammars of their tests and of StructureBench.
"""
