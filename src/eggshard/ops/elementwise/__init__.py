"""Elementwise ops: one table that says everything about each of them."""
