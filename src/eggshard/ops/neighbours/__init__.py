"""Ops that access neighbouring elements along a dimension: halos, convolutions, sliding-window reductions."""
