"""The form in which the planner takes regions, whatever front end read them.

*In*: a Region as its author spelled it. *Out*: a Region that computes the same: data moves by static ops where its
indices are known, rotations and extensions are stated as such (`normal_forms`, which finds them by `index_maps` and
writes them by `region_writer`), ops that nobody uses are gone (`dead_ops`), and loops and branches that devices may
take differently are marked (`divergence`).

*Not here*: what may or may not be cheaper, which `rewrites/` offers and the search decides; and anything that knows the
language that the source was written in.
"""
