"""Prices of a compiled XLA program under a cost model: its collectives and kernels are priced like steps of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import StepInfo
from eggshard.hlo.collectives import CollectiveCount, CollectiveOp
from eggshard.hlo.kernels import Kernel
from eggshard.program.mesh import Mesh

_DTYPES = {"pred": "i1", "c64": "complex<f32>", "c128": "complex<f64>"}


def communication_seconds(count: CollectiveCount, pricer: Pricer) -> float:
    """What the collectives cost, one after the other; device ids are the logical ones of the pricer's mesh.

    A group is priced over the mesh axes along which its devices differ. A variadic collective is one message.
    """
    return sum(op.trip_count * collective_seconds(op, pricer) for op in count.ops)


def collective_seconds(op: CollectiveOp, pricer: Pricer) -> float:
    """What one execution of a collective costs; nothing where nothing is sent."""
    return pricer.info(_step(op, pricer.mesh)) if op.wire_bytes else 0.0


def compute_seconds(kernels: Iterable[Kernel], pricer: Pricer) -> float:
    """What the kernels cost, one after the other, each as one local step.

    Ops that the model has dearer than others, such as a tanh, are so within a fusion, too. What is laid out for a
    collective is copied as the model has that collective copy.
    """
    return sum(k.trip_count * _kernel_seconds(k, pricer) for k in kernels)


def _kernel_seconds(kernel: Kernel, pricer: Pricer) -> float:
    seconds = pricer.compute(kernel.op, kernel.flops, kernel.memory_bytes, _dtype(kernel.dtype))
    for op, dtype, flops, memory_bytes in kernel.parts:
        alone, fused = (pricer.compute(name, flops, memory_bytes, _dtype(dtype)) for name in (op, "fusion"))
        seconds += max(0.0, alone - fused)
    for kind, memory_bytes, runs in kernel.copied:
        step = StepInfo(kind, pricer.mesh, group=pricer.mesh.size, messages=1, dtype=_dtype(kernel.dtype))
        seconds += pricer.info(replace(step, copied_bytes=memory_bytes, runs=runs)) - pricer.info(step)
    return seconds


def _step(op: CollectiveOp, mesh: Mesh) -> StepInfo:
    axes = _axes(op.groups, mesh)
    group = mesh.count(axes) if op.kind == "collective-permute" else op.group_size
    result = float(op.result_bytes)
    operand = {"all-gather": result / group, "reduce-scatter": result * group}.get(op.kind, result)
    return StepInfo(
        op.kind, mesh, axes=axes, group=group, wire_bytes=op.wire_bytes, messages=1, memory_bytes=result + operand,
        dtype=_dtype(op.dtypes[0]) if op.dtypes else "f32",
    )


def _axes(groups: Sequence[Sequence[int]], mesh: Mesh) -> tuple[str, ...]:
    """The axes along which some group's devices differ, in the order of the mesh."""
    def differ(places: Sequence[int]) -> bool:
        return any(len({places[i] for i in group}) > 1 for group in groups)

    return tuple(axis for axis, places in mesh.coordinates.items() if differ(places.tolist()))


def _dtype(name: str) -> str:
    """HLO's name of an element type in StableHLO's spelling."""
    if name in _DTYPES:
        return _DTYPES[name]
    if name[:1] in ("s", "u") and name[1:].isdecimal():
        return {"s": "i", "u": "ui"}[name[0]] + name[1:]
    return name
