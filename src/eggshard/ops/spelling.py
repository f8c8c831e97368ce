"""Writer of ops and regions as MLIR text, in the generic form that every MLIR parser reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eggshard.ops import base
from eggshard.ops.base import Printed, Printer, Values
from eggshard.ops.op_writer import OpWriter
from eggshard.program.attributes import Attributes
from eggshard.program.codec import attribute_dictionary
from eggshard.program.program import Op, Region
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
        head, names = bound(self.fresh, mlir_name, [name for name, _ in operands], len(results))
        head += f" <{attribute_dictionary(attributes)}>" if attributes else ""
        tail = f" : {function_type([t for _, t in operands], results)}"
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
            more, results = self.statement(op, operands, [region.types[v] for v in op.results])
            lines += ["  " + line for line in more]
            names.update(zip(op.results, results, strict=True))
        outputs = ", ".join(names[v] for v in region.outputs)
        types = ", ".join(str(region.types[v]) for v in region.outputs)
        return [*lines, f'  "{terminator}"({outputs}) : ({types}) -> ()']


    def statement(self, op: Op, operands: Values, results: Sequence[TensorType]) -> Printed:
        """One op of a region."""
        return self.op(op.name, op.attributes, operands, results, op.regions)


class PrintedOps(OpWriter[tuple[str, TensorType]]):
    """The ops that one op is printed as. ``lines``: those so far."""

    def __init__(self, printer: Printer):
        self._printer, self.lines = printer, list[str]()

    def emit(
        self, name: str, operands: Values, attributes: Attributes, regions: tuple[Region, ...] = ()
    ) -> tuple[tuple[str, TensorType], ...]:
        results = base.get(name).infer(attributes, tuple(t for _, t in operands), regions)
        lines, names = self._printer.op(name, attributes, operands, results, regions)
        self.lines += lines
        return tuple(zip(names, results, strict=True))

    def type_of(self, value: tuple[str, TensorType]) -> TensorType:
        return value[1]


def bound(
    fresh: Callable[[], str], mlir_name: str, operands: Sequence[str], results: int
) -> tuple[str, list[str]]:
    """How an op's text begins, ``%v0:2 = "stablehlo.sort"(%a, %b)``, and its results' names."""
    call = f'"{mlir_name}"({", ".join(operands)})'
    if not results:
        return call, []
    name = fresh()
    if results == 1:
        return f"{name} = {call}", [name]
    return f"{name}:{results} = {call}", [f"{name}#{i}" for i in range(results)]


def function_type(operands: Sequence[TensorType], results: Sequence[TensorType]) -> str:
    """MLIR's type of an op, ``(tensor<4xf32>) -> tensor<2xf32>``."""
    ins = ", ".join(map(str, operands))
    outs = str(results[0]) if len(results) == 1 else f"({', '.join(map(str, results))})"
    return f"({ins}) -> {outs}"


def name_supply(prefix: str = "v") -> Callable[[], str]:
    """A supplier of value names ``%v0``, ``%v1``, ..."""
    count = 0

    def fresh() -> str:
        nonlocal count
        count += 1
        return f"%{prefix}{count - 1}"

    return fresh
