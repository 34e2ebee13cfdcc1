"""Measures engines on context-free grammars: `python -m benchmarks.grammars`.

`suite` has the grammars, each with texts; `measure` runs one grammar in a fork. `truncation` cuts generations at
multiples of the least budget, `growth` measures larger and larger grammars and texts, `beams` compares beam search
under a grammar with beam search under a regular constraint, and `templates` has StructureBench's grammars judged.
"""
