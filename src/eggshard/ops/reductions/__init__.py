"""Reductions over dimensions, the monoids of their bodies, and sorting."""
