"""Writer of ops and regions as MLIR text, in the generic form that every MLIR parser reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eggshard.ops import base
from eggshard.ops.base import Printed, Values
from eggshard.program.attributes import Attributes
from eggshard.program.codec import attribute_dictionary
from eggshard.program.program import Region
from eggshard.program.types import TensorType

Lines = list[str]


class MlirPrinter:
    """The printer of `OpDef.emit`. fresh: makes new names of values, by default ``%v0``, ``%v1``, ..."""

    def __init__(self, fresh: Callable[[], str] | None = None):
        self.fresh = fresh or name_supply()

    def op(
        self, name: str, attrs: Attributes, operands: Values, results: Sequence[TensorType],
        regions: Sequence[Region] = (),
    ) -> Printed:
        return base.get(name).emit(attrs, operands, tuple(results), tuple(regions), self)

    def operation(
        self, mlir_name: str, attributes: Sequence[tuple[str, str]], operands: Values, results: Sequence[TensorType],
        regions: Sequence[Lines],
    ) -> Printed:
        name = self.fresh() if results else ""
        bound = {0: "", 1: f"{name} = "}.get(len(results), f"{name}:{len(results)} = ")
        names = [name] if len(results) == 1 else [f"{name}#{i}" for i in range(len(results))]
        inputs = ", ".join(operand for operand, _ in operands)
        properties = f" <{attribute_dictionary(attributes)}>" if attributes else ""
        ins = ", ".join(str(t) for _, t in operands)
        outs = str(results[0]) if len(results) == 1 else f"({', '.join(map(str, results))})"
        head, tail = f'{bound}"{mlir_name}"({inputs}){properties}', f" : ({ins}) -> {outs}"
        if not regions:
            return [head + tail], names
        lines = [head + " ({"]
        for i, region in enumerate(regions):
            lines += ["}, {"] if i else []
            lines += region
        return [*lines, "})" + tail], names

    def region(
        self, region: Region, inputs: Sequence[str] | None = None, terminator: str = "stablehlo.return"
    ) -> Lines:
        lines: Lines = []
        if inputs is None:
            inputs = [self.fresh() for _ in region.inputs]
            listed = ", ".join(f"{n}: {region.types[v]}" for n, v in zip(inputs, region.inputs, strict=True))
            lines.append(f"^bb0({listed}):")
        names = dict(zip(region.inputs, inputs, strict=True))
        for op in region.ops:
            operands = [(names[v], region.types[v]) for v in op.operands]
            more, results = self.op(op.name, op.attributes, operands, [region.types[v] for v in op.results], op.regions)
            lines += ["  " + line for line in more]
            names.update(zip(op.results, results, strict=True))
        outputs = ", ".join(names[v] for v in region.outputs)
        types = ", ".join(str(region.types[v]) for v in region.outputs)
        return [*lines, f'  "{terminator}"({outputs}) : ({types}) -> ()']


def name_supply(prefix: str = "v") -> Callable[[], str]:
    """A supplier of value names ``%v0``, ``%v1``, ..."""
    count = 0

    def fresh() -> str:
        nonlocal count
        count += 1
        return f"%{prefix}{count - 1}"

    return fresh


def function_text(region: Region, name: str = "main") -> str:
    """A ``func.func`` of a region: what the StableHLO interpreter and XLA run on whole tensors."""
    printer = MlirPrinter()
    inputs = [printer.fresh() for _ in region.inputs]
    listed = ", ".join(f"{n}: {region.types[v]}" for n, v in zip(inputs, region.inputs, strict=True))
    outputs = ", ".join(str(region.types[v]) for v in region.outputs)
    body = printer.region(region, inputs, "func.return")
    return "\n".join([f"func.func @{name}({listed}) -> ({outputs}) {{", *body, "}"])
