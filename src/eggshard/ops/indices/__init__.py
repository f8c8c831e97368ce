"""Ops at data-dependent positions: dynamic slices, gathers and scatters, also on shards of what they index."""
