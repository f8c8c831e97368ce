"""Choice of how each reduction of a plan is done: by MPI where it has an equivalent one, else by the ranks themselves.

MPI leaves NaN undefined for MAX and MIN, where maximum and minimum propagate it; it has no bfloat16, no 8-bit floats
and no regions; and for products of complex numbers its treatment of infinities is the C compiler's. In these cases
every rank is sent the operands and combines them as the simulator does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from mpi4py import MPI

from eggshard.engines.ranks.traffic import Box, Reduction, traffic_of
from eggshard.engines.workspace.steps import Path
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.steps.authored_steps import GroupCollective
from eggshard.steps.steps import AllReduce, ReduceScatter, StepPlan

#: Reductions of no more bytes are combined by every rank, which saves sending results around.
SMALL = 1024

_INTEGERS = {
    "i8": MPI.INT8_T, "i16": MPI.INT16_T, "i32": MPI.INT32_T, "i64": MPI.INT64_T,
    "ui8": MPI.UINT8_T, "ui16": MPI.UINT16_T, "ui32": MPI.UINT32_T, "ui64": MPI.UINT64_T,
}  # fmt: skip
_FLOATS = {"f32": MPI.FLOAT, "f64": MPI.DOUBLE}
_COMPLEX = {"complex<f32>": MPI.C_FLOAT_COMPLEX, "complex<f64>": MPI.C_DOUBLE_COMPLEX}
_OPS = {
    "add": MPI.SUM, "mul": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN, "and": MPI.BAND, "or": MPI.BOR, "xor": MPI.BXOR
}  # fmt: skip
#: Truth values are bytes 0 and 1.
_OF_TRUTH = {"and": MPI.BAND, "min": MPI.BAND, "or": MPI.BOR, "max": MPI.BOR, "xor": MPI.BXOR}


def native(monoid: str, dtype: str) -> tuple[MPI.Op, MPI.Datatype] | None:
    """MPI's operation and type for a monoid over an element type; None where MPI has none of this meaning."""
    if dtype in _INTEGERS:
        return _OPS[monoid], _INTEGERS[dtype]
    if dtype == "i1" and monoid in _OF_TRUTH:
        return _OF_TRUTH[monoid], MPI.UINT8_T
    if dtype in _FLOATS and monoid in ("add", "mul"):
        return _OPS[monoid], _FLOATS[dtype]
    if dtype in _COMPLEX and monoid == "add":
        return MPI.SUM, _COMPLEX[dtype]
    return None


class Scheme(NamedTuple):
    """How a group reduces one operand.

    native: MPI's operation and type, or None: then member i is sent ``boxes[i]`` of everybody's operand as ``shape``,
    and combines it. scatter: each member keeps its box only; else the result is put together on all, unless every
    member combined all of it.
    """

    shape: tuple[int, ...]
    boxes: tuple[Box, ...]
    scatter: bool
    native: tuple[MPI.Op, MPI.Datatype] | None

    @property
    def largest(self) -> int:
        """Elements of the largest box."""
        return max((math.prod(stop - start for start, stop in box) for box in self.boxes), default=0)

    @property
    def staged(self) -> int:
        """Elements of scratch that each member needs."""
        return 0 if self.native else len(self.boxes) * self.largest

    @property
    def shared(self) -> bool:
        """Whether parts of the result are put together on all members."""
        return not self.scatter and self.largest < math.prod(self.shape)


def scheme(reduction: Reduction, type_: TensorType) -> Scheme:
    """How a group reduces an operand of a local type."""
    by, shape, kept = reduction.by, type_.shape, reduction.boxes
    operation = native(by, type_.dtype) if isinstance(by, str) else None
    if any(box != tuple((0, n) for n in shape) for box in kept):
        return Scheme(shape, kept, True, operation if _blocks(kept, shape) else None)
    if operation:
        return Scheme(shape, kept, False, operation)
    members, elements = len(kept), type_.elements
    size = elements if type_.bytes <= SMALL else -(-elements // members)
    starts = [0] * members if size == elements else [min(i * size, elements) for i in range(members)]
    return Scheme((elements,), tuple(((a, min(a + size, elements)),) for a in starts), False, None)


def staging(path: Path, index: int, program: StepPlan) -> Iterable[tuple[int, int]]:
    """What a step needs besides its operands and results: where parts that this rank combines are put, per operand.

    All groups reduce alike, so the first device's is looked at.
    """
    step = program.steps[index]
    types = tuple(program.types[v] for v in step.operands)
    if isinstance(step.action, (AllReduce, ReduceScatter, GroupCollective)):
        for k, reduction in enumerate(traffic_of(program.mesh, step.action, types, 0).reductions):
            staged = scheme(reduction, types[k]).staged
            if staged:
                yield k, staged * numpy_dtype(types[k].dtype).itemsize


def _blocks(boxes: tuple[Box, ...], shape: tuple[int, ...]) -> bool:
    """Whether the boxes are the array's equal blocks, one after the other in memory."""
    sizes = {tuple(stop - start for start, stop in box) for box in boxes}
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    if len(sizes) != 1:
        return False
    (size,) = sizes
    elements = math.prod(size)
    span = 1 + sum((n - 1) * stride for n, stride in zip(size, strides, strict=True))
    firsts = [sum(start * s for (start, _), s in zip(box, strides, strict=True)) for box in boxes]
    return span == elements and firsts == [i * elements for i in range(len(boxes))]
