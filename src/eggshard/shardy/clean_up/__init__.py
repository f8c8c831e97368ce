"""Passes that tidy annotations and decide nothing."""
