"""Device programs of ops on windows: the physical steps of an op's `WindowForm`."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.ops.base import OpDef
from eggshard.ops.windowing import EDGE_MODES, Box, Filled, Layer, Reach, Windowed
from eggshard.placement.transfer import Strategy
from eggshard.placement.windows import reached
from eggshard.program import monoids
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import CollectivePermute, Local, StepPlan
from eggshard.steps.window_steps import BoxSelect, EdgeFill

Types = tuple[TensorType, ...]


def window_program(
    mesh: Mesh, definition: OpDef, attributes: Attributes, operands: Types, results: Types, strategy: Strategy,
    windowed: frozenset[int],
) -> StepPlan:
    """The steps of an op on shards that lie as the strategy says, ``windowed`` being its windowed result dimensions."""
    body = Assembler(mesh)
    inputs = [body.input(p.local_type(t)) for p, t in zip(strategy.operands, operands, strict=True)]
    windows = {d: strategy.results[0].dims[d] for d in windowed}
    reaches = definition.reaches(attributes, operands, results) or ()
    strategy = strategy._replace(operands=tuple(
        _repeated(mesh, t, p, row, windows, results[0].shape)
        for t, p, row in zip(operands, strategy.operands, reaches, strict=True)
    ))
    local_operands = tuple(p.local_type(t) for p, t in zip(strategy.operands, operands, strict=True))
    local_results = tuple(p.local_type(t) for p, t in zip(strategy.results, results, strict=True))
    form = definition.window_form(attributes, operands, results, local_operands, local_results, windows)
    values = [_broadcast(body, value, t) for value, t in zip(inputs, local_operands, strict=True)]
    for fill in form.fills:
        values[fill.operand] = _fill(body, values[fill.operand], fill, inputs, operands, strategy)
    for i, row in enumerate(reaches):
        axes = [a for r in row if r is not None and r.mirrored for a in strategy.results[0].dims[r.dim].axes]
        if axes:
            pairs = zip(mesh.grid.reshape(-1).tolist(), mesh.mirrored(axes).reshape(-1).tolist(), strict=True)
            (values[i],) = body.emit(CollectivePermute(tuple(pairs), tuple(axes)), (values[i],), ("mirrored",))
    if form.layers:
        out = values[form.layers[0].operand]
        for layer in form.layers[1:]:
            out = _overlay(body, out, values[layer.operand], layer, strategy.results[0], results[0])
        return body.build([out])
    if form.attributes is None:
        return body.build([values[0]])
    flops = definition.flops(form.attributes, local_operands, local_results)
    return body.build(body.emit(Local(definition.name, form.attributes, local_results, (), flops), tuple(values)))


def _repeated(
    mesh: Mesh, type_: TensorType, placement: Placement, reaches: Sequence[Reach | None], windows: Windowed,
    shape: tuple[int, ...],
) -> Placement:
    """The placement of an operand whose dimensions of size 1 are held whole, as windows full of that one element;
    ``shape`` is the result's."""
    dims = list(placement.dims)
    for d, reach in enumerate(reaches):
        if reach is not None and reach.dim in windows and type_.shape[d] == 1:
            window = windows[reach.dim]
            dims[d] = reached(window, reach, mesh.count(window.axes), shape[reach.dim], type_.shape[d])
    return placement._replace(dims=tuple(dims))


def _broadcast(body: Assembler, value: int, type_: TensorType) -> int:
    if body.types[value] == type_:
        return value
    broadcast = Attributes({"broadcast_dimensions": tuple(range(type_.rank)), "shape": type_.shape})
    return body.emit(Local("broadcast_in_dim", broadcast, (type_,)), (value,), ("place",))[0]


def _fill(body: Assembler, value: int, fill: Filled, inputs: list[int], operands: Types, strategy: Strategy) -> int:
    placement, type_ = strategy.operands[fill.operand], operands[fill.operand]
    if fill.value in EDGE_MODES:
        for dim, start, stop in fill.box:
            assert (start, stop) == (0, type_.shape[dim]), "edges are the tensor's"
            if _reaches_outside(body.mesh, placement.dims[dim], start, stop):
                (value,) = body.emit(EdgeFill(dim, placement.dims[dim], stop, str(fill.value)), (value,), ("edge",))
        return value
    box = tuple(b for b in fill.box if _reaches_outside(body.mesh, placement.dims[b[0]], b[1], b[2]))
    if not box:
        return value
    if isinstance(fill.value, int):
        outside = inputs[fill.value]
    else:
        outside = body.scalar(monoids.identity(fill.value, type_.dtype), type_.dtype)
    return _select(body, box, placement, value, outside)


def _overlay(body: Assembler, under: int, over: int, layer: Layer, placement: Placement, result: TensorType) -> int:
    """The layer's operand inside its box, and what is under it elsewhere."""
    whole = {dim: (start, stop) for dim, start, stop in layer.box}
    shape = body.types[under].shape
    if body.types[over].shape != shape:  # along dimensions held whole the operand lies at the box's corner
        low = [whole[d][0] if m != n else 0 for d, (m, n) in enumerate(zip(body.types[over].shape, shape, strict=True))]
        high = [n - m - a for m, n, a in zip(body.types[over].shape, shape, low, strict=True)]
        zero = body.scalar(0, result.dtype)
        padding = Attributes({
            "edge_padding_low": tuple(low), "edge_padding_high": tuple(high), "interior_padding": (0,) * len(shape),
        })
        (over,) = body.emit(Local("pad", padding, (result.with_shape(shape),)), (over, zero), ("place",))
    box = tuple(b for b in layer.box if _reaches_outside(body.mesh, placement.dims[b[0]], b[1], b[2]))
    return _select(body, box, placement, over, under) if box else over


def _select(body: Assembler, box: Box, placement: Placement, inside: int, outside: int) -> int:
    placed = tuple((dim, placement.dims[dim], start, stop) for dim, start, stop in box)
    return body.emit(BoxSelect(placed), (inside, outside), ("window",))[0]


def _reaches_outside(mesh: Mesh, dim: Dim, start: int, stop: int) -> bool:
    """Whether some shard holds indices outside the range."""
    last = mesh.count(dim.axes) * dim.tile + dim.high
    return dim.low < start or last > stop
