"""Sharding propagation as in Shardy, from stated shardings to those of every value."""
