"""Solves the paper's tasks by our search and by other systems.

`fashion` is Ordered Fashion-MNIST (section 5.1), `commongen` CommonGen and Ordered CommonGen (5.2), `infilling` text
infilling (5.3), and `runtimes` the seconds per request over the number of beams (table 2). `truncation` gives patterns
with budgets close to the shortest possible. All but `fashion` run the systems of `benchmarks.systems`.
"""
