"""Predicts how processes go on under rules: `python -m benchmarks.declare --data CHECKOUT`.

`logs` reads logs and rules, `models` has the two models, `prediction` the systems that predict with them.
"""
