"""Writer of a whole program as a StableHLO module with Shardy's shardings: global shapes and stated shardings.

The text reads back as the same program.
"""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.errors import LoweringError
from eggshard.ops.regions.manual import manual_attributes
from eggshard.ops.spelling import Lines, MlirPrinter
from eggshard.program.codec import String, attribute_dictionary
from eggshard.program.program import Op, Program, Region
from eggshard.program.sharding import DimSharding, Sharding, mesh_text, whole_mesh
from eggshard.program.types import TensorType


def program_text(program: Program) -> str:
    """The module of a program; LoweringError for shardings that the text cannot express."""
    mesh, region = program.mesh, program.region
    writer = _Writer()
    inputs = [writer.printer.fresh() for _ in region.inputs]
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
    body = writer.region(region, "func.return", inputs)
    lines = [f"module attributes {{mhlo.num_partitions = {mesh.size} : i32, mhlo.num_replicas = 1 : i32}} {{"]
    if mesh.axes:
        lines.append(f"sdy.mesh @mesh = {mesh_text(whole_mesh(mesh))}")
    return "\n".join([*lines, f"func.func public @main({arguments}) -> ({results}) {{", *body, "}", "}", ""])


#: Ops whose regions hold tensors with shardings of their own; other regions are of scalars.
PRINTED_REGIONS = ("while", "case", "if", "manual_computation")


class _Writer:
    """Prints regions."""

    def __init__(self) -> None:
        self.printer = MlirPrinter()

    def region(self, region: Region, terminator: str, inputs: Sequence[str] | None = None) -> Lines:
        """One block's lines; ``inputs`` name outside values, None makes the inputs block arguments."""
        lines: Lines = []
        if inputs is None:
            inputs = [self.printer.fresh() for _ in region.inputs]
            listed = ", ".join(f"{n}: {region.types[v]}" for n, v in zip(inputs, region.inputs, strict=True))
            lines.append(f"^bb0({listed}):")
        names = dict(zip(region.inputs, inputs, strict=True))
        for op in region.ops:
            operands = [(names[v], region.types[v]) for v in op.operands]
            types = [region.types[v] for v in op.results]
            more, results = self.op(op, operands, types)
            if more:
                more[-1] = self.annotated(more[-1], op, types)
            lines += ["  " + line for line in more]
            names.update(zip(op.results, results, strict=True))
        outputs = ", ".join(names[v] for v in region.outputs)
        ending = ", ".join(str(region.types[v]) for v in region.outputs)
        return [*lines, f'  "{terminator}"({outputs}) : ({ending}) -> ()']

    def op(self, op: Op, operands: list[tuple[str, TensorType]], results: list[TensorType]) -> tuple[Lines, list[str]]:
        """One op's lines and its results' names."""
        match op.name:
            case "sharding_constraint":
                pairs = [("sharding", f"#sdy.sharding{self.stated(op.attributes['sharding'])}")]
                return self.printer.operation("sdy.sharding_constraint", pairs, operands, results, [])
            case "sharding_group":
                pairs = [("group_id", f"{op.attributes['group_id']} : i64")]
                return self.printer.operation("sdy.sharding_group", pairs, operands, [], [])
            case "manual_computation":
                body = self.region(op.regions[0], "sdy.return")
                pairs = manual_attributes(op.attributes)
                return self.printer.operation("sdy.manual_computation", pairs, operands, results, [body])
            case "while":
                bodies = [self.region(r, "stablehlo.return") for r in op.regions]
                return self.printer.operation("stablehlo.while", [], operands, results, bodies)
            case "case" | "if":
                given = [name for name, _ in operands[1:]]
                bodies = [self.region(r, "stablehlo.return", given) for r in op.regions]
                return self.printer.operation(f"stablehlo.{op.name}", [], operands[:1], results, bodies)
        return self.printer.op(op.name, op.attributes, operands, results, op.regions)

    def stated(self, sharding: Sharding | None) -> str | None:
        """A sharding's text; None for one that is not stated."""
        if sharding is None:
            return None
        if sharding.unreduced and sharding.reduction != "add":
            raise LoweringError(f"sharding {sharding}: Shardy's text knows no addends but those of sums")
        return sharding.text()

    def annotated(self, line: str, op: Op, results: Sequence[TensorType]) -> str:
        """The line that ends an op, with the op's stated shardings."""
        stated = [self.stated(s) for s in op.shardings]
        pairs = []
        if any(stated) and op.name != "sharding_constraint":
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
