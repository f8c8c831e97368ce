"""Strip-mining: steps in loops over strips of their arrays, so that what passes between them is never whole in memory.

In: a device program. Out: another one that computes the same (`strip_mining.cuts`).
"""
