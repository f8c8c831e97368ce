"""Normalization: the form of regions that the planner expects, whichever front end read them.

*In*: a Region as its author wrote it. *Out*: an equivalent Region. Data moves by static ops where its indices are
known; gathers and scatters at counted places are batched (`batch_indices`); rotations and extensions are explicit
(`normal_forms`, which finds them by `index_maps` and writes them by `region_writer`); dead ops are removed
(`dead_ops`), and those whose course is known (`known_courses`); loops and branches that may diverge between devices are
marked (`divergence`).

*Not here*: rewrites that may or may not be cheaper, which `rewrites/` offers and the search decides; and anything that
knows the language of the source.
"""
