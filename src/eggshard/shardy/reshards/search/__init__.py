"""Choosing the placements of a module's own ops all at once: what each op offers, the problem, and its writing down."""
