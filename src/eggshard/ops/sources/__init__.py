"""Ops that make tensors of nothing: constants, counters, random numbers."""
