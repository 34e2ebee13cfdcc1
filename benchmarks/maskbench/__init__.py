"""Measures engines on the schemas of MaskBench: `python -m benchmarks.maskbench --data CHECKOUT`.

`suite` reads and selects the files, `measure` runs one schema in a fork.
"""
