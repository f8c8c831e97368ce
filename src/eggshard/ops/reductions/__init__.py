"""Reductions over dimensions, the monoids that their bodies are, and sorting."""
