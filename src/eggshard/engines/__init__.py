"""Lowering: from a plan to StableHLO, to JAX, and to the NumPy device simulator."""
