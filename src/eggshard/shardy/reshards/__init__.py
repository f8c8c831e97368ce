"""Passes that decide: where values are resharded, and by which collectives."""
