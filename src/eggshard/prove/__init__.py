"""Proofs that a plan computes what its program says: both evaluated on random elements of prime fields, exactly.

In: a plan (`plan`), whose program and device program run in NumPy (`ops`, `simulate`). Out: a `Proof`. Ops keep their
code; what their elements are is passed down (`ops.arithmetic`). Rounding, precision and overflow do not exist here, and
nothing that is lowered or compiled is looked at: `engines` verifies that.

`python -m bench prove` shows what a change of its constants does.
"""
