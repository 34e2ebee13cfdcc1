"""Measures the compiler, the decoder and the service; trains the built-in model.

The service imports nothing of this package. Each command stores its figures under `results`, from which
`benchmarks.report` writes RESULTS.md. Imports go one way: `report` and `systems` below `compiler`, then `decoding`,
`quality` and `tasks`.
"""
