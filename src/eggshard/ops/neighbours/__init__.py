"""Ops that look at neighbours along a dimension: halos, convolutions, reductions over sliding windows."""
