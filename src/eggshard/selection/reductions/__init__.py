"""Problem reductions, each with an inverse that maps plans of the reduced problem back.

In comes a `Problem`; out goes another and an `Inverse`, which lifts selections back and lowers plans that are known.
`reduction` is the interface, with chains of reductions. Presolve, dominated-column elimination and folding keep the
optimum; `affordable` keeps every plan up to a cost; `terms` keeps some plans only.

What needs a search or a solver does not belong here: a reduction is told the bounds and plans that it goes by.
"""
