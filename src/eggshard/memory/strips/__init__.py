"""Strip-mining: runs steps in loops over strips of their arrays, so that intermediate arrays are never whole in memory.

In: a device program. Out: another one that computes the same (`strip_mining.cuts`).
"""
