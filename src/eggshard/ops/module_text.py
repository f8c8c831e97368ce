"""Writer of a whole program as a StableHLO module with Shardy's shardings: global shapes and stated shardings.

The text reads back as the same program.
"""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.errors import LoweringError
from eggshard.ops.base import Printed, Values
from eggshard.ops.spelling import MlirPrinter
from eggshard.program.codec import String, attribute_dictionary
from eggshard.program.program import Op, Program
from eggshard.program.sharding import DimSharding, Sharding, mesh_text, whole_mesh
from eggshard.program.types import TensorType


def program_text(program: Program) -> str:
    """The module of a program; LoweringError for shardings that the text cannot express."""
    mesh, region = program.mesh, program.region
    writer = _Printer()
    inputs = [writer.fresh() for _ in region.inputs]
    arguments = ", ".join(
        f"{name}: {region.types[v]}{_attributes(writer.stated(sharding), 'jax.arg_info', given, f'arg{i}')}"
        for i, (name, v, sharding, given) in enumerate(
            zip(inputs, region.inputs, program.input_shardings, _names(program.input_names, inputs), strict=True)
        )
    )
    results = ", ".join(
        f"{region.types[v]}{_attributes(writer.stated(sharding), 'jax.result_info', given, f'result{i}')}"
        for i, (v, sharding, given) in enumerate(
            zip(region.outputs, program.output_shardings, _names(program.output_names, region.outputs), strict=True)
        )
    )
    body = writer.region(region, inputs, "func.return")
    lines = [f"module attributes {{mhlo.num_partitions = {mesh.size} : i32, mhlo.num_replicas = 1 : i32}} {{"]
    if mesh.axes:
        lines.append(f"sdy.mesh @mesh = {mesh_text(whole_mesh(mesh))}")
    return "\n".join([*lines, f"func.func public @main({arguments}) -> ({results}) {{", *body, "}", "}", ""])


#: Ops whose regions hold tensors with shardings of their own; other regions are of scalars.
PRINTED_REGIONS = ("while", "case", "if", "manual_computation")


class _Printer(MlirPrinter):
    """Prints what is stated of shardings, too."""

    def statement(self, op: Op, operands: Values, results: Sequence[TensorType]) -> Printed:
        match op.name:
            case "sharding_constraint":
                pairs = [("sharding", f"#sdy.sharding{self.stated(op.attributes['sharding'])}")]
                return self.operation("sdy.sharding_constraint", pairs, operands, results, [])
            case "sharding_group":
                pairs = [("group_id", f"{op.attributes['group_id']} : i64")]
                return self.operation("sdy.sharding_group", pairs, operands, [], [])
        lines, names = super().statement(op, operands, results)
        return [*lines[:-1], *(self.annotated(line, op, results) for line in lines[-1:])], names

    def stated(self, sharding: Sharding | None) -> str | None:
        """A sharding's text; None for one that is not stated."""
        if sharding is None:
            return None
        if sharding.unreduced and sharding.reduction != "add":
            raise LoweringError(f"sharding {sharding}: Shardy's text knows no partial sums but those of sums")
        return sharding.text()

    def annotated(self, line: str, op: Op, results: Sequence[TensorType]) -> str:
        """The line that ends an op, with the op's stated shardings."""
        stated = [self.stated(s) for s in op.shardings]
        pairs = []
        if any(stated):
            listed = ", ".join(text or _open(t) for text, t in zip(stated, results, strict=True))
            pairs.append(("sdy.sharding", f"#sdy.sharding_per_value<[{listed}]>"))
        # Lowered calls have no rule any more, but here its sizes are the global ones that it speaks of.
        if rule := op.attributes.get("sdy.sharding_rule"):
            pairs.append(("sdy.sharding_rule", rule))
        head, colon, types = line.rpartition(" : (")
        if pairs and colon:
            given = head.endswith("}") and not head.endswith(("}>", "})"))
            inside = attribute_dictionary(pairs)
            line = (f"{head[:-1]}, {inside[1:]}" if given else f"{head} {inside}") + colon + types
        return line


def _open(type_: TensorType) -> str:
    """What to state for a result without a sharding beside results that have one."""
    return Sharding((DimSharding(open=True),) * type_.rank).text()


def _names(names: Sequence[str], values: Sequence[object]) -> list[str]:
    return [*names, *[""] * (len(values) - len(names))]


def _attributes(stated: str | None, key: str, name: str, default: str) -> str:
    """`` {sdy.sharding = ..., jax.arg_info = ...}`` of an argument or result, or nothing."""
    parts = [f"sdy.sharding = #sdy.sharding{stated}"] if stated else []
    if name and name != default:
        parts.append(f"{key} = {String().encode(name)}")
    return f" {{{', '.join(parts)}}}" if parts else ""
