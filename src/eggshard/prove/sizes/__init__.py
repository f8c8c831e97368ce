"""Smaller sizes at which a plan and its program agree only if they do at full size.

In: a plan. Out: plans at reduced sizes (`shrinking`). `classes` says which dimensions are one index, `places` how many
places of it suffice, and `lines` how long dimensions must be that windows pass along.
"""
