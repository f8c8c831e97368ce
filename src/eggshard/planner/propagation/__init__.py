"""Propagation of shardings, from those that are stated to those of every value, as Shardy does it."""
