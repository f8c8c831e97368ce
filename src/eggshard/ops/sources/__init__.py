"""Ops without tensor operands: constants, counters, random numbers."""
