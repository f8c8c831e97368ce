"""Ops that hold regions: loops, branches, computations written per device."""
