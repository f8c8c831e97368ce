"""Extraction: selection problems, solvers, bounds."""
