"""Ops that move elements between shards (along permutation factors): the dimensions concerned, and the exchanges."""
