"""Programs as read from a source, and the vocabulary that all other modules share.

A `Program` is a region of ops over numbered values (`program`), with a mesh (`mesh`), tensor types (`types`) and the
shardings that its author stated (`sharding`). A *sharding* is a statement in Shardy's grammar; a `Placement`
(`placement`) is what it means for one shape: which part of a tensor each device holds, and over which axes it is a
partial sum.

In: nothing; front ends build programs. Out: immutable values that compare by content. What an op means stands in
`ops`; how tensors get from one placement to another, in `reshard`.

`python -m bench padslice` shows what a change of its constants does.
"""
