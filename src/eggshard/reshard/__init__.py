"""Resharding: the cheapest collectives from one placement of a tensor to another.

In: a tensor type, two placements, and prices. Out: a shortest path (`routes`) through states that are one collective
apart (`states`, `conversions`); between shards with halos (`window_routes`); on the axes that a manual computation
leaves free (`submesh`).

Resharding changes where a tensor lies and never what it is: equal tensors are the business of `rewrites`.

`python -m bench reshard exhaustive` shows what a change of its constants does.
"""
