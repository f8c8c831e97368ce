"""Primal search: greedy plans, local search on the exact DAG cost, and plans decoded from dual prices.

In comes a `Graph` (and choices to begin with); out goes a valid `Selection` with its exact cost, or None. `state` is a
plan under change, `marginal` prices alternatives to a plan's decisions. Nothing here proves optimality.
"""
