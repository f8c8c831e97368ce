"""Propagation of shardings in MLIR modules, from stated ones to those of every value."""
