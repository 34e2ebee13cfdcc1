"""Measures tool calls on the tools of BFCL v4: `python -m benchmarks.bfcl --data CHECKOUT`.

`suite` reads the tools, `forms` writes requests with them in the form of each engine, `measure` runs one request in a
fork.
"""
