"""What compiling a constraint costs: time, memory and look-ups, beside other engines.

`compile` measures a suite of constraints, whose cases are in `regex_cases`, `schema_cases` and `word_cases`; `scale`
the growth with the size of a constraint; `ltlf` our translation of formulas beside MONA. Each compile of `compile` and
`scale` runs in a forked process of an engine (`engine_process`). `engines` adapts our compiler and the others to
the protocol `MaskEngine`.
"""
