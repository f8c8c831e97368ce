"""Machines: levels of links with their topologies, what collectives take on them, files that hold their constants."""
