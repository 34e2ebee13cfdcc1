"""Measures how probable each search's answers are and which heuristics matter.

`search_quality` compares both searches with the best known answers, which for the model of `bigram` is the exact
optimum. `beam_widths` measures cost and quality over the beam width. `ablation` switches off each heuristic in turn and
compares the costs to go of the literature (`lookahead_search`). `cases` has the constraints of all three.
"""
