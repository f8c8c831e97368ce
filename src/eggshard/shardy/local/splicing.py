"""Splicing of device steps into a module as StableHLO, by the text that plans are lowered to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext

from eggshard.emit.body_text import Value
from eggshard.emit.collectives_text import StepText
from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import DimSharding, Sharding, mesh_text
from eggshard.program.tensor_sharding import symbol_text
from eggshard.program.types import TensorType
from eggshard.steps.steps import Action, Step, StepPlan


class Splicer:
    """Writes steps in front of ops of one module, or behind them.

    ``mesh_name``: the symbol of the mesh, if groups of devices are to be written as axes of it instead of as lists.
    """

    def __init__(self, channels: Iterator[int]) -> None:
        self._channels = channels

    def act(
        self, mesh: Mesh, actions: Sequence[Action], value: Any, type_: TensorType, op: Any, mesh_name: str = "",
        after: bool = False,
    ) -> Any:
        """The value of this type after actions one after the other, each of one operand and one result."""
        types, steps = [type_], []
        for i, action in enumerate(actions):
            types += action.result(mesh, (types[i],))
            steps.append(Step(action, (i,), (i + 1,)))
        if not steps:
            return value
        plan = StepPlan(mesh, (0,), tuple(steps), (len(steps),), tuple(types))
        return self.program(plan, [value], op, mesh_name, after)[0]

    def program(
        self, plan: StepPlan, operands: Sequence[Any], op: Any, mesh_name: str = "", after: bool = False
    ) -> list[Any]:
        """The outputs of a device program on values, written in front of an op or behind it."""
        body = _Text(plan.mesh, channels=self._channels)
        body.mesh_name = mesh_name
        arguments = [Value(f"%arg{i}", plan.types[v]) for i, v in enumerate(plan.inputs)]
        outputs = body.program(plan, arguments)
        inputs = ", ".join(f"{a.name}: {a.type}" for a in arguments)
        types = ", ".join(str(v.type) for v in outputs)
        listed = ", ".join(v.name for v in outputs)
        meshes = [f"sdy.mesh @{symbol_text(mesh_name)} = {mesh_text(plan.mesh)}"] if mesh_name else []
        head, tail = f"func.func @steps({inputs}) -> ({types}) {{", f"func.return {listed} : {types}"
        lines = [*meshes, head, *body.lines, tail, "}"]
        module = ir.Module.parse("\n".join(lines))
        function = list(module.body.operations)[-1].operation
        with ir.InsertionPoint.after(op) if after else ir.InsertionPoint(op):
            return list(_jax_mlir_ext.inlined_func_call(function, list(operands), op.location))


class _Text(StepText):
    """Step text whose `replica_groups` name the axes of a mesh where the mesh has a name, instead of listing groups."""

    mesh_name = ""

    def region(self) -> Self:
        inner = super().region()
        inner.mesh_name = self.mesh_name
        return inner

    def _group(self, axes: tuple[str, ...]) -> str:
        if not self.mesh_name:
            return super()._group(axes)
        (dim,) = Sharding((DimSharding(tuple(map(axis_ref, axes))),)).canonical(self.mesh).dims
        listed = ", ".join(f"#sdy<axis_ref{axis}>" for axis in dim.axes)
        groups = f"#stablehlo.replica_group_mesh_axes<mesh = @{symbol_text(self.mesh_name)}, axes = [{listed}]>"
        return f"replica_groups = {groups}, {self.channel()}"
