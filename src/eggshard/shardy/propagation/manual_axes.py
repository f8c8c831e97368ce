"""Completion of manual axes: every sharding of a manual computation comes to name all of them."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ShardingError
from eggshard.planner.propagation.draft import naming
from eggshard.planner.propagation.table import ShardingTable
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
from eggshard.shardy.module import ShardyModule, manual_axes
from eggshard.shardy.passes import shardy_pass


@shardy_pass("manual-axes-cleanup")
def manual_axes_cleanup(module: ShardyModule) -> None:
    """Put manual axes in the mesh's order, and those that a sharding does not name among its replicated axes.

    ShardingError for a computation that is manual, not empty, and has neither operands nor results.
    """
    table = ShardingTable(module.meshes)
    for op in module.walk("sdy.manual_computation"):
        stated = {name: read_per_value(str(op.attributes[name])) for name in ("in_shardings", "out_shardings")}
        every = [sharding for shardings in stated.values() for sharding in shardings]
        if not every:
            first = op.regions[0].blocks[0].operations[0].operation
            if manual_axes(op) and first.name != "sdy.return":
                raise ShardingError(
                    f"sdy.manual_computation is manual along {', '.join(manual_axes(op))}, but has no operands and no "
                    "results, which would tell its mesh; give it one, or leave its body empty")
            continue
        common = table.common_mesh(tuple(map(table.number, every)))
        if common is None:
            raise ShardingError(
                f"sdy.manual_computation has shardings on different meshes, {', '.join(map(str, every))}; state all of "
                "them on one")
        name, mesh = common
        axes = sorted(manual_axes(op), key=list(mesh.axes).index)
        quoted = ", ".join(f'"{axis}"' for axis in axes)
        op.attributes["manual_axes"] = ir.Attribute.parse(f"#sdy<manual_axes{{{quoted}}}>")
        for attribute, values in (("in_shardings", op.operands), ("out_shardings", op.results)):
            named = [_naming(s, axes, name, mesh, v) for s, v in zip(stated[attribute], values, strict=True)]
            op.attributes[attribute] = ir.Attribute.parse(per_value_text(named))


def _naming(sharding: TensorSharding, axes: list[str], name: str | Mesh, mesh: Mesh, value: Any) -> TensorSharding:
    """The sharding with all of the axes named; that of a token as it is."""
    if not isinstance(value.type, ir.ShapedType):
        return sharding
    named = naming(sharding.sharding, axes, mesh)
    return sharding if named == sharding.sharding else TensorSharding(name, named)
