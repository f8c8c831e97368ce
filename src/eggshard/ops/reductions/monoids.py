"""Recognition of reduction bodies: a region of two scalars that is one commutative op is known by its monoid's name."""

from __future__ import annotations

from eggshard.program.monoids import OF_OP, identity as identity_of
from eggshard.program.program import Region

__all__ = ["SET", "identity_of", "recognise_monoid"]

#: The name of a scatter's body that returns the update, whatever stood there.
SET = "set"


def recognise_monoid(region: Region) -> str | None:
    """The monoid that a body of two scalars computes, in either order; ``set`` for one that returns the second.

    None for any other body; it stays a region.
    """
    if len(region.inputs) != 2 or len(region.outputs) != 1:
        return None
    if not region.ops and region.outputs[0] == region.inputs[1]:
        return SET
    if len(region.ops) != 1:
        return None
    (op,) = region.ops
    if sorted(op.operands) != sorted(region.inputs) or op.results != region.outputs:
        return None
    return OF_OP.get(op.name)
