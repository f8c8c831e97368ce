"""Reductions that pick elements, such as an argmax, over a sharded dimension: every device picks of its own shard.

What devices have picked is gathered, and the op picks of that. This is no partial value: no monoid of one tensor
combines the values of several.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eggshard.ops import registry
from eggshard.ops.base import PASS, FactorRule
from eggshard.ops.numerics import bit_width
from eggshard.placement.transfer import AxisList, Strategy, enumerated
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import AllGather, Local, StepPlan
from eggshard.steps.window_steps import BoxSelect

Types = tuple[TensorType, ...]
#: The op that is done like this.
NAME = "reduce_general"
_PICKING = frozenset({"select", "compare", "and", "or", "not", "xor", "maximum", "minimum", "constant", "is_finite"})


def picks(name: str, regions: tuple[Region, ...]) -> bool:
    """Whether an op is a reduction whose body computes no new numbers: it may see elements, and inits, repeatedly."""
    return name == NAME and all(
        op.name in _PICKING and not op.regions and (op.name != "compare" or op.results[0] not in regions[0].outputs)
        for op in regions[0].ops
    )


def picking_strategies(
    mesh: Mesh, attributes: Attributes, rule: FactorRule, orders: frozenset[AxisList], limit: int
) -> Iterator[Strategy]:
    """The strategies that shard a dimension which is reduced; the results are whole along its axes."""
    reduced = {rule.operands[0][d][0] for d in attributes["dimensions"] if rule.operands[0][d]}
    factors = tuple(replace(f, kind=PASS) if i in reduced else f for i, f in enumerate(rule.factors))
    for strategy in enumerated(mesh, replace(rule, factors=factors), orders, lambda monoid: False, limit).found:
        if _axes(attributes, strategy):
            yield strategy._replace(regroups=True)


def picked(
    mesh: Mesh, attributes: Attributes, regions: tuple[Region, ...], operands: Types, results: Types, strategy: Strategy
) -> StepPlan:
    """The device program of a reduction that picks, by one of its `picking_strategies`."""
    definition, half = registry.get(NAME), len(results)
    body = Assembler(mesh)
    values = [body.input(p.local_type(t)) for p, t in zip(strategy.operands, operands, strict=True)]
    inits = tuple(values[half:])
    held, shape = strategy.operands[0].dims, operands[0].shape
    uneven = (d for d in attributes["dimensions"] if held[d].tile * mesh.count(held[d].axes) > shape[d])
    box = tuple((d, held[d], 0, shape[d]) for d in uneven)
    given = [
        body.emit(BoxSelect(box), (x, init), ("mask uneven",))[0] if box else x
        for x, init in zip(values, inits, strict=False)
    ]

    def reduce(parts: tuple[int, ...], attrs: Attributes) -> tuple[int, ...]:
        types = tuple(body.types[v] for v in parts)
        made = definition.infer(attrs, types, regions)
        return body.emit(Local(NAME, attrs, made, regions, definition.flops(attrs, types, made)), parts)

    own = reduce((*given, *inits), attributes)
    all_of = _gathered(body, own, _axes(attributes, strategy))
    return body.build(reduce((*all_of, *inits), attributes.updated(dimensions=(0,))))


def _gathered(body: Assembler, values: tuple[int, ...], axes: AxisList) -> list[int]:
    """Values of all devices along axes, in a new first dimension; elements of one width go in one message."""
    found: dict[int, int] = {}
    widths = [bit_width(body.types[v].dtype) for v in values]
    for width in dict.fromkeys(widths):
        alike = [v for v, w in zip(values, widths, strict=True) if w == width]
        shape, plain = body.types[alike[0]].shape, f"ui{width}"
        joined = len(alike) > 1 and width >= 8 and not any(body.types[v].dtype.startswith("complex") for v in alike)
        if not joined:
            for v in alike:
                found[v] = _of_all(body, body.reshape(v, (1, *shape)), axes)
            continue
        rows = tuple(body.reshape(_as(body, v, plain), (1, 1, *shape)) for v in alike)
        type_ = TensorType((1, len(rows), *shape), plain)
        (row,) = body.emit(Local("concatenate", Attributes(dimension=1), (type_,)), rows)
        all_rows = _of_all(body, row, axes)
        count = body.types[all_rows].shape[0]
        for k, v in enumerate(alike):
            starts, limits = (0, k, *(0,) * len(shape)), (count, k + 1, *shape)
            cut = Attributes(start_indices=starts, limit_indices=limits, strides=(1,) * len(starts))
            (part,) = body.emit(Local("slice", cut, (TensorType((count, 1, *shape), plain),)), (all_rows,))
            found[v] = _as(body, body.reshape(part, (count, *shape)), body.types[v].dtype)
    return [found[v] for v in values]


def _of_all(body: Assembler, value: int, axes: AxisList) -> int:
    return body.emit(AllGather(((0, axes),)), (value,), ("picked by devices",))[0]


def _as(body: Assembler, value: int, dtype: str) -> int:
    """The bits of a value as elements of another type of their width."""
    type_ = body.types[value]
    if type_.dtype == dtype:
        return value
    made = TensorType(type_.shape, dtype)
    return body.emit(Local("bitcast_convert", Attributes(dtype=dtype, shape=type_.shape), (made,)), (value,))[0]


def _axes(attributes: Attributes, strategy: Strategy) -> AxisList:
    """The axes along which reduced dimensions are sharded."""
    held = strategy.operands[0].dims
    return tuple(a for d in sorted(attributes["dimensions"]) for a in held[d].axes)
