"""Gathers and scatters at places counted along a batch dimension, as ``x[jnp.arange(n), i]``, are batched along it.

Counted places are those of the shard, where data-dependent ones may be anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eggshard.frontends.normalization.region_writer import Constants, Form, RegionWriter
from eggshard.ops.windows import Windows
from eggshard.program.program import Op

_NUMBERS = {"gather": "dimension_numbers", "scatter": "scatter_dimension_numbers"}


class _Counted(NamedTuple):
    """What is indexed along its dimension ``operand`` by the position along dimension ``indices`` of the indices."""

    operand: int
    indices: int


def _indices(op: Op) -> int:
    return op.operands[len(op.operands) // 2]


def _windows(op: Op) -> Windows:
    numbers = op.attributes[_NUMBERS[op.name]]
    return Windows.of_gather(numbers) if op.name == "gather" else Windows.of_scatter(numbers)


def _counted(op: Op, constants: Constants) -> dict[int, _Counted]:
    """By component of the index vectors those that are counted; none unless each is an operand of a concatenation."""
    windows, joined = _windows(op), constants.definitions.get(_indices(op))
    if joined is None or joined.name != "concatenate" or len(windows.index_map) < 2:
        return {}
    if joined.attributes["dimension"] != windows.index_vector_dim or len(joined.operands) != len(windows.index_map):
        return {}
    shape = constants.types[op.operands[0]].shape
    found: dict[int, _Counted] = {}
    for j, (d, part) in enumerate(zip(windows.index_map, joined.operands, strict=True)):
        array = constants.array(part) if d in windows.collapsed else None
        taken = {*windows.indices_batching, *(c.indices for c in found.values())}
        along = None if array is None else _places(array, shape[d])
        if along is not None and along not in taken and along != windows.index_vector_dim:
            found[j] = _Counted(d, along)
    return found


def _places(array: np.ndarray, size: int) -> int | None:
    """The dimension that integers count 0, 1, ... along, up to a size."""
    for d, n in enumerate(array.shape):
        places = np.arange(n).reshape([-1 if e == d else 1 for e in range(array.ndim)])
        if n == size > 1 and (array == places).all():
            return d
    return None


def _batched(writer: RegionWriter, op: Op) -> int | None:
    counted, windows = _counted(op, writer.constants), _windows(op)
    parts = [writer.number[v] for j, v in enumerate(writer.constants.definitions[_indices(op)].operands)
             if j not in counted]
    if not counted or not parts or len(op.results) != 1:
        return None
    pairs = sorted([*zip(windows.operand_batching, windows.indices_batching, strict=True), *counted.values()])
    gone = {c.operand for c in counted.values()}
    batched = windows._replace(
        collapsed=_without(windows.collapsed, gone), index_map=_without(windows.index_map, gone),
        operand_batching=tuple(d for d, _ in pairs), indices_batching=tuple(e for _, e in pairs))
    numbers = batched.gather_numbers if op.name == "gather" else batched.scatter_numbers
    indices = writer.concatenate(parts, windows.index_vector_dim)
    operands = [indices if v == _indices(op) else writer.number[v] for v in op.operands]
    attributes = op.attributes.updated(**{_NUMBERS[op.name]: numbers})
    return writer.emit(op.name, operands, attributes, op.regions)[0]


def _without(dims: Sequence[int], gone: set[int]) -> tuple[int, ...]:
    return tuple(d for d in dims if d not in gone)


#: Gathers and scatters at counted places.
AT_COUNTED = dict.fromkeys(_NUMBERS, Form(lambda op, constants: bool(_counted(op, constants)), _batched))
