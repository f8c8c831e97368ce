"""The exact solver: integer programming with HiGHS, which is loaded on first use.

In comes a `Graph`, a plan if one is known, work and a gap; out goes the best plan found and a bound of all plans.
`program` is the model, `covers` the rows that tighten it, `highs` the adapter to the solver. How large a problem may be
to come here, and what to do with a failure (`highs.SolverError`), is for the caller to say.
"""
