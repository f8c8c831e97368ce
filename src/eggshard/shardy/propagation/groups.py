"""Sharding groups: values that are sharded alike, wherever they are."""
