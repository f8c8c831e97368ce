"""Equivalence classes of a kernel's values: those that are one tensor up to its layout.

A layout conversion gives the same tensor, and so do equal pure ops on equal tensors, provided the first dominates the
second (congruence). A tensor that the text computes several times, for the sake of several layouts, is one class that
may be computed at any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eggshard.triton.control import SEALED
from eggshard.triton.kernels.ir import Block, Kernel, Operation, TensorType, Value
from eggshard.triton.kernels.text import without_encodings
from eggshard.triton.rules import movable

CONVERT = "ttg.convert_layout"

@dataclass
class Classes:
    """``of[value]``: its class. Per class its meaning (``types``, without encodings) and the value that is defined
    first (``first``). ``same[op]``: the earlier op that an op repeats."""

    of: dict[Value, int] = field(default_factory=dict)
    types: list[TensorType] = field(default_factory=list)
    first: list[Value] = field(default_factory=list)
    same: dict[Operation, Operation] = field(default_factory=dict)

    def add(self, value: Value) -> None:
        """A class of its own for a tensor; those without an encoding have no layouts to choose."""
        if isinstance(value.type, TensorType) and value.type.encoding is not None:
            self.of[value] = len(self.types)
            self.types.append(value.type._replace(encoding=None))
            self.first.append(value)


def find_classes(kernel: Kernel) -> Classes:
    """The classes of all tensors of a kernel."""
    found = Classes()
    same_scalar: dict[Value, Value] = {}

    def visit(block: Block, known: dict[object, Operation]) -> None:
        for argument in block.arguments:
            found.add(argument)
        for op in block.operations:
            if op.name == CONVERT:
                if op.operands[0] in found.of:
                    found.of[op.results[0]] = found.of[op.operands[0]]
                continue
            key = _meaning(op, found, same_scalar) if movable(op) else None
            earlier = known.get(key) if key is not None else None
            if earlier is not None:
                found.same[op] = earlier
                for old, new in zip(earlier.results, op.results, strict=True):
                    if old in found.of:
                        found.of[new] = found.of[old]
                    else:
                        same_scalar[new] = same_scalar.get(old, old)
                continue
            for result in op.results:
                found.add(result)
            if key is not None:
                known[key] = op
            for region in op.regions if op.name not in SEALED else ():
                for inner in region.blocks:
                    visit(inner, dict(known))

    for block in (b for function in kernel.functions for region in function.regions for b in region.blocks):
        visit(block, {})
    return found


def _meaning(op: Operation, classes: Classes, scalars: dict[Value, Value]) -> object:
    """What two equal ops have in common: all but layouts and locations; None for what is not compared."""
    regions = _region_meaning(op, scalars, {})
    operands = tuple(classes.of.get(v, scalars.get(v, v)) for v in op.operands)
    types = tuple(str(v.type._replace(encoding=None)) if isinstance(v.type, TensorType) else v.type for v in op.results)
    properties = tuple((name, without_encodings(text)) for name, text in op.properties.items())
    attributes = tuple((name, without_encodings(text)) for name, text in op.attributes.items())
    return op.name, operands, types, properties, attributes, regions


def _region_meaning(op: Operation, scalars: dict[Value, Value], numbers: dict[Value, int]) -> tuple[object, ...]:
    """A combining region's ops, with what is defined inside numbered."""
    found: list[object] = []
    for region in op.regions:
        for label, block in enumerate(region.blocks):
            for value in (*block.arguments, *(v for inner in block.operations for v in inner.results)):
                numbers[value] = len(numbers)
            found.append((label, tuple(str(argument.type) for argument in block.arguments)))
            for inner in block.operations:
                operands = tuple(numbers.get(v, scalars.get(v, v)) for v in inner.operands)
                types = tuple(str(v.type) for v in inner.results)
                found.append((inner.name, operands, types, tuple(inner.properties.items()),
                              tuple(inner.attributes.items()), tuple(inner.successors),
                              _region_meaning(inner, scalars, numbers)))
    return tuple(found)
