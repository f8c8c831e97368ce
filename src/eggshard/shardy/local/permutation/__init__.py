"""Ops that move elements between shards (permutation factors): which dimensions these are, and how shards exchange."""
