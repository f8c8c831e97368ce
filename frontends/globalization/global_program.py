"""Replaces manual computations by their global reading, in a program and in its loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eggshard.errors import EggshardError
from eggshard.frontends.globalization.body_reader import Reader
from eggshard.frontends.globalization.global_writer import GlobalWriter
from eggshard.frontends.globalization.local_values import Cut, Local, Unreadable, tiled, whole
from eggshard.frontends.globalization.needed import everything
from eggshard.frontends.normalization.normal_forms import finished
from eggshard.program.attributes import Attributes
from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh
from eggshard.program.program import Op, Program, Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType
from eggshard.settings import LOGGER

_MANUAL = "manual_computation"


def globalized(program: Program) -> Program | None:
    """The program in which manual computations that exchange by collective-permutes are ops on global tensors; None if
    there are none that can be read so. Values of the program keep their numbers."""
    region = _region(program.mesh, program.region)
    return None if region is program.region else replace(program, region=region)


def _region(mesh: Mesh, region: Region) -> Region:
    """A region with its manual computations replaced; the region itself if there are none."""
    ops, types, changed = [], list(region.types), False
    for op in region.ops:
        if op.name == _MANUAL:
            body = _global_body(mesh, op, [region.types[v] for v in op.operands])
            if body is not None:
                ops += _inlined(op, body, types)
                changed = True
                continue
        elif op.regions:
            inner = tuple(_region(mesh, r) for r in op.regions)
            if any(a is not b for a, b in zip(inner, op.regions, strict=True)):
                op, changed = replace(op, regions=inner), True
        ops.append(op)
    return Region(region.inputs, tuple(ops), region.outputs, tuple(types)) if changed else region


def _global_body(mesh: Mesh, op: Op, operands: Sequence[TensorType]) -> Region | None:
    """The manual computation as a region of global tensors, at its shardings; None if it has no such reading."""
    attributes, (region,) = op.attributes, op.regions
    if not any(inner.name == "collective_permute" for inner in _ops_within(region)):
        return None
    try:
        write = GlobalWriter(mesh, operands)
        given = []
        for v, sharding, type_ in zip(write.inputs, attributes["in_shardings"], operands, strict=True):
            write.location = op.location
            cuts = _cuts(mesh, attributes["manual_axes"], sharding, type_)
            given.append(Local((v,), tuple(
                tiled(d, cut.axes, mesh.count(cut.axes), cut.stride) if cut.axes else whole(d, n)
                for d, (cut, n) in enumerate(zip(cuts, type_.shape, strict=True)))))
        reader = Reader(region, write, given, [everything(region.types[v]) for v in region.outputs])
        outputs = []
        for value, sharding, type_ in zip(reader.read(), attributes["out_shardings"], attributes["result_types"],
                                          strict=True):
            made = write.aligned(value, _cuts(mesh, attributes["manual_axes"], sharding, type_)).roots[0]
            if write.type_of(made) != type_:
                raise Unreadable(f"a result of {write.type_of(made)} is {type_} outside")
            outputs.append(made)
    except (EggshardError, Unreadable) as error:
        LOGGER.debug("a manual computation is planned as it is written: %s", error)
        return None
    return finished(write.build(outputs))


def _ops_within(region: Region) -> list[Op]:
    return [op for outer in region.ops for op in (outer, *(o for r in outer.regions for o in _ops_within(r)))]


def _cuts(mesh: Mesh, manual: Sequence[str], sharding: Sharding, type_: TensorType) -> list[Cut]:
    """How a tensor outside is cut between devices; Unreadable unless every axis is manual and tiles are even."""
    placement = sharding.to_placement(mesh, type_)
    free = [a for a, n in mesh.axes.items() if n > 1 and axis_ref(a).name not in manual]
    counts = [mesh.count(d.axes) for d in placement.dims]
    if free or placement.partial or any(n % k for n, k in zip(type_.shape, counts, strict=True)):
        raise Unreadable("axes are left free, or sums open, or tiles uneven")
    return [Cut(tuple(d.axes), n // k) if d.axes else Cut()
            for d, n, k in zip(placement.dims, type_.shape, counts, strict=True)]


def _inlined(op: Op, body: Region, types: list[TensorType]) -> list[Op]:
    """The ops of a region in place of an op, between constraints that state the op's shardings. types: of the values
    around it, which grow."""
    number: dict[int, int] = {}

    def new(type_: TensorType) -> int:
        types.append(type_)
        return len(types) - 1

    def constraint(value: int, result: int, sharding: Sharding) -> Op:
        return Op("sharding_constraint", (value,), (result,), Attributes(sharding=sharding), location=op.location)

    ops = []
    for v, outer, sharding in zip(body.inputs, op.operands, op.attributes["in_shardings"], strict=True):
        number[v] = new(body.types[v])
        ops.append(constraint(outer, number[v], sharding))
    for inner in body.ops:
        number.update((v, new(body.types[v])) for v in inner.results)
        ops.append(replace(inner, operands=tuple(number[v] for v in inner.operands),
                           results=tuple(number[v] for v in inner.results)))
    for v, outer, sharding in zip(body.outputs, op.results, op.attributes["out_shardings"], strict=True):
        ops.append(constraint(number[v], outer, sharding))
    return ops
