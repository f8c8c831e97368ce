"""Ops at positions that are data: dynamic slices, gathers and scatters, also on shards of what they index."""
