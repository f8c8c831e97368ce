"""The e-graph: equality saturation of a region's ops by egglog, in a worker process.

In: a region and rules. Out: an `EGraph` (`graph`): classes of equal tensors, each with all nodes that compute it.
`rules` and `patterns` are the language of rules, `laws` the tests that every rule must pass, `saturate` the way to the
engine and back.

There are no costs, meshes or placements in here but one closure that egglog computes (`placements`).

`python -m bench dense stencil` shows what a change of its constants does.
"""
