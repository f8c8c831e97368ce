"""Plans: greedy ones, local search on the exact DAG cost, and those that dual prices decode to.

In comes a `Graph` (and choices to begin with); out goes a valid `Selection` with its exact cost, or None. `state` is a
plan under change, `marginal` what else a plan could have chosen. No proofs here: what is best is not said.
"""
