"""Placements: what each device holds of a tensor, and how one becomes another."""
