"""Problem reductions: smaller problems, and the way back.

In comes a `Problem`. `presolve.shrink` gives one of the same optimum, by presolve, dominated-column elimination and
folding, with an `Inverse` that lifts selections back and lowers plans that are known. `parts` leaves some plans only,
with the numbers as they are.

What needs a search or a solver does not belong here: a reduction is told the bounds and plans that it goes by.
"""
