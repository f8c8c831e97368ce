"""Ops that are kept as they are: custom calls, unknown ops, and collectives written by the program's author."""
