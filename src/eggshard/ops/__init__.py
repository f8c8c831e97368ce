"""Ops: one definition per op, which says all that eggshard knows of it.

A definition (`base.OpDef`) answers every question that other rooms ask of an op: result types, sharding factors, the
meaning in NumPy, what a window of the result needs, the textual form. Families stand in rooms of their own; importing
this one loads them all, and `registry` finds definitions by name.

What is imported from here by name is public; the modules inside may change in any version.

In: names, attributes and types. Out: answers. Meshes, placements and prices are not known here.

`python -m bench stencil` shows what a change of its constants does.
"""

from eggshard.ops import base as registry
from eggshard.ops.algebra import contraction, linalg
from eggshard.ops.base import Factor, FactorRule, OpDef, register
from eggshard.ops.calls import collectives, opaque
from eggshard.ops.elementwise import table as elementwise
from eggshard.ops.elementwise.pointwise import Pointwise
from eggshard.ops.indices import indexing, scatter
from eggshard.ops.neighbours import convolution, halo, window_reduction
from eggshard.ops.reductions import reduction, sorting
from eggshard.ops.regions import control, manual
from eggshard.ops.shapes import annotation, movement, slicing
from eggshard.ops.sources import creation, random
from eggshard.program.attributes import Attributes, Literal

#: The modules that define ops, in alphabetical order.
FAMILIES = (
    annotation,
    collectives,
    contraction,
    control,
    convolution,
    creation,
    elementwise,
    halo,
    indexing,
    linalg,
    manual,
    movement,
    opaque,
    random,
    reduction,
    scatter,
    slicing,
    sorting,
    window_reduction,
)

__all__ = ["FAMILIES", "Attributes", "Factor", "FactorRule", "Literal", "OpDef", "Pointwise", "register", "registry"]
