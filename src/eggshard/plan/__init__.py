"""Plans as data: a program's device program, with its price, its certificate and its reasons.

`record` is what a plan is, `reasons` why it is so, `naming` what its values are called. A plan is written and read as
JSON (`serialization`), held against the program that it was made for (`identity`), and put on another number of
devices (`scaling`).

In: what `planner` decided. Out: records. What can be *done* with a plan (run, verified, lowered, shown) stands in the
rooms above, and is gathered in `eggshard.api`.

`python -m bench scale` shows what a change of its constants does.
"""
