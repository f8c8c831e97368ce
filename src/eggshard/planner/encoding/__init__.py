"""Translation between e-graphs and selection problems: candidates and prices in, device programs out.

In: an e-graph and what its nodes offer. Out: a selection problem with the meaning of its numbers (`encode`), windows
included (`widening`); and of a selection the steps (`decode`) and what explains them (`weighing`).
"""
