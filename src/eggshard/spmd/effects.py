"""Ops with effects, which run as often as in the unsharded program: on a mesh, on one device alone."""

from __future__ import annotations

from eggshard.errors import ProgramError
from eggshard.ops.numerics import bit_width
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TOKEN, TensorType, is_float
from eggshard.steps.assemble import Assembler
from eggshard.steps.authored_steps import OnFirstDevice
from eggshard.steps.steps import AllReduce, Local, StepPlan


def run_once(mesh: Mesh, local: Local, operands: tuple[TensorType, ...]) -> StepPlan:
    """The op on the first device, its results then on all: adding zeros to them changes nothing.

    ProgramError for ops on tokens: these order effects between ops, which devices of a mesh cannot share.
    """
    if any(t.dtype == TOKEN for t in (*operands, *local.result_types)):
        shown = local.attributes.get("mlir_name") or local.attributes.get("call_target_name") or local.name
        raise ProgramError(
            f"{shown} takes or makes a token on a mesh of {mesh.size} devices; tokens order effects on one device "
            "only. Use unordered effects (ordered=False), or plan for a single device"
        )
    assembler = Assembler(mesh)
    values = tuple(assembler.input(t) for t in operands)
    results = assembler.emit(OnFirstDevice(local), values, ("effects run once",))
    axes = tuple(a for a, n in mesh.axes.items() if n > 1)
    shared = [_shared(assembler, r, t, axes) for r, t in zip(results, local.result_types, strict=True)]
    return assembler.build(shared)


def _shared(assembler: Assembler, value: int, type_: TensorType, axes: tuple[str, ...]) -> int:
    """The first device's value on all devices: the sum of its bits and zeros, so that -0.0 and NaNs stay themselves."""
    why = ("results of the first device",)

    def bits_as(value: int, type_: TensorType) -> int:
        local = Local("bitcast_convert", Attributes(dtype=type_.dtype), (type_,))
        return assembler.emit(local, (value,), why)[0]

    if not is_float(type_.dtype) or type_.dtype.startswith("complex"):
        monoid = "or" if type_.dtype == "i1" else "add"
        return assembler.emit(AllReduce(axes, monoid), (value,), why)[0]
    bits = TensorType(type_.shape, f"ui{bit_width(type_.dtype)}")
    (summed,) = assembler.emit(AllReduce(axes, "add"), (bits_as(value, bits),), why)
    return bits_as(summed, type_)
