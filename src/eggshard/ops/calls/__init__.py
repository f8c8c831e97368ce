"""Ops that are kept as they are: custom calls, unknown ops, and collectives that an author wrote."""
