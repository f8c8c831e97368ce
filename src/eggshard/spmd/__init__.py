"""Single ops as device programs, for every op that is more than a local op on shards.

In: an op and a strategy. Out: steps, for ops that must know where their shards lie (`on_shards`), look at neighbours
(`window_program`), split a sharded dimension (`regrouping`), have effects (`effects`), or were written per device by
their author (`manual`, `authored`). Whole device programs are improved, too: messages joined (`joining`, `sharing`),
what is loop-invariant taken out of loops (`hoisting`).

Which strategy is chosen is decided above, in `planner`.

`python -m bench stencil latency` shows what a change of its constants does.
"""
