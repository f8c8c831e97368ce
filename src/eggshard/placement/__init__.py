"""Placement rules: which placements of an op's operands give which placement of its results without communication.

In: an op's factor rule (`ops.base.FactorRule`) and a mesh. Out: strategies (`transfer`), also on shards that hold some
of their neighbours' elements (`windows`, `window_transfer`), and what two tilings of one tensor have in common
(`grids`, `slabs`, `edge_colouring`).

What a placement is stands in `program.placement`. Nothing here communicates: that takes `steps`, found by `reshard`.

`python -m bench planning` shows what a change of its constants does.
"""
