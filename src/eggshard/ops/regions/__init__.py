"""Ops that hold regions: loops, branches, manual computations."""
