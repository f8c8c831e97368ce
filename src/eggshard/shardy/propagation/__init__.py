"""Propagation: from the shardings that are stated to those of every value."""
