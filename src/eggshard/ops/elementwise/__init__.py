"""Elementwise ops, defined in one table."""
