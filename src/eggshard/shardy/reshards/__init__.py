"""Resharding passes, which decide where values are resharded, and by which collectives."""
