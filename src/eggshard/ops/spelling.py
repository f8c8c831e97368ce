"""MLIR text of ops and regions, in the generic form that every MLIR parser reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eggshard.ops import base
from eggshard.ops.base import OpDef, Types, Values
from eggshard.program.attributes import Attributes
from eggshard.program.codec import attribute_dictionary, encode_attributes
from eggshard.program.program import Region
from eggshard.program.types import TensorType

Lines = list[str]


def emit(
    name: str,
    attrs: Attributes,
    operands: Values,
    results: Sequence[TensorType],
    regions: Sequence[Region],
    fresh: Callable[[], str],
) -> tuple[Lines, list[str]]:
    """The lines that compute an op of the registry, and the names of its results.

    ``operands`` are (name, type) pairs; ``fresh`` makes new value names; all names begin with ``%``. The results' types
    may be shard-local. ProgramError for an unknown op or a missing attribute.
    """
    return base.get(name).emit(attrs, operands, tuple(results), tuple(regions), fresh)


def emit_generic(
    definition: OpDef,
    attrs: Attributes,
    operands: Values,
    results: Types,
    regions: tuple[Region, ...],
    fresh: Callable[[], str],
) -> tuple[Lines, list[str]]:
    """One op in the generic form; its regions' inputs become block arguments."""
    texts = [region_text(region, fresh) for region in regions]
    return emit_operation(definition.spelling, encode_attributes(definition.attributes, attrs), operands, results,
                          texts, fresh)


def emit_operation(
    mlir_name: str,
    attributes: Sequence[tuple[str, str]],
    operands: Values,
    results: Sequence[TensorType],
    regions: Sequence[Lines],
    fresh: Callable[[], str],
) -> tuple[Lines, list[str]]:
    """One op in the generic form from the texts of its attributes and regions.

    ``attributes`` are (name, text) pairs; ``regions`` are lines as `region_text` gives them.
    """
    name = fresh() if results else ""
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


def region_text(
    region: Region,
    fresh: Callable[[], str],
    inputs: Sequence[str] | None = None,
    terminator: str = "stablehlo.return",
) -> Lines:
    """The lines of a region's one block, with its terminator, without the braces.

    ``inputs`` names values of the surrounding text that stand for the region's inputs (for ops whose regions use
    outside values); None makes the inputs block arguments.
    """
    lines: Lines = []
    if inputs is None:
        inputs = [fresh() for _ in region.inputs]
        listed = ", ".join(f"{n}: {region.types[v]}" for n, v in zip(inputs, region.inputs, strict=True))
        lines.append(f"^bb0({listed}):")
    names = dict(zip(region.inputs, inputs, strict=True))
    for op in region.ops:
        operands = [(names[v], region.types[v]) for v in op.operands]
        more, results = emit(op.name, op.attributes, operands, [region.types[v] for v in op.results], op.regions, fresh)
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


def print_op(
    name: str,
    attrs: Attributes,
    operand_names: Sequence[str],
    operand_types: Sequence[TensorType],
    result_types: Sequence[TensorType],
    regions: Sequence[Region] = (),
) -> str:
    """The text of one op, for messages and tests."""
    operands = list(zip(operand_names, operand_types, strict=True))
    return "\n".join(emit(name, attrs, operands, result_types, regions, name_supply())[0])


def function_text(region: Region, name: str = "main") -> str:
    """A ``func.func`` of a region: what the StableHLO interpreter and XLA run on whole tensors."""
    fresh = name_supply()
    inputs = [fresh() for _ in region.inputs]
    listed = ", ".join(f"{n}: {region.types[v]}" for n, v in zip(inputs, region.inputs, strict=True))
    outputs = ", ".join(str(region.types[v]) for v in region.outputs)
    body = region_text(region, fresh, inputs, "func.return")
    return "\n".join([f"func.func @{name}({listed}) -> ({outputs}) {{", *body, "}"])
