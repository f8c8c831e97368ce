"""Translation of MLIR ops for the op registry, which provides their sharding factors and local attributes."""

from __future__ import annotations

from typing import Any, NamedTuple

from eggshard.errors import EggshardError
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.frontends.stablehlo.module_reader import ModuleReader, captured_values
from eggshard.frontends.stablehlo.op_readers import OP_READERS, component_monoids, is_identity, literal_value
from eggshard.frontends.stablehlo.region_reader import RegionReader
from eggshard.frontends.stablehlo.shardings import MeshTable
from eggshard.ops import registry
from eggshard.ops.base import OpDef, Types
from eggshard.ops.reductions.monoids import recognise_monoid
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Region
from eggshard.program.sharding import Sharding
from eggshard.shardy.module import maker

#: StableHLO's reductions, which the registry knows in two forms.
REDUCTIONS = ("stablehlo.reduce", "stablehlo.reduce_window")


class _NoShardings(MeshTable):
    """Shardings inside regions of scalars say nothing."""

    def per_value(self, text: str) -> tuple[Sharding, ...]:
        return ()


class _Reader(ModuleReader):
    def __init__(self) -> None:
        super().__init__()
        self.meshes = _NoShardings()


class Part(NamedTuple):
    """An op of the registry that is an MLIR op, or one of the ops that it stands for.

    ``operands`` and ``results`` are the numbers of the MLIR op's that are its own. ``inits``: per result the operand
    that a reduction starts from, where the registry's op has none.
    """

    definition: OpDef
    attributes: Attributes
    operands: tuple[int, ...]
    results: tuple[int, ...]
    regions: tuple[Region, ...] = ()
    inits: tuple[int, ...] = ()


def parts_of(op: Any, operands: Types, results: Types) -> list[Part] | None:
    """The parts of an op on these (global) types; None if the registry does not know it.

    ProgramError for attributes or regions of a form that it does not know.
    """
    reader = _Reader()
    whole = tuple(range(len(operands))), tuple(range(len(results)))
    if op.name in ("stablehlo.constant", "sdy.constant"):
        value = Attributes(value=reader.literal(literal_value(op))["value"])
        return [Part(registry.get("constant"), value, *whole)]
    if op.name == "stablehlo.optimization_barrier":
        barrier = registry.get("optimization_barrier")
        return [Part(barrier, Attributes(), (i,), (i,)) for i in whole[0]]
    definition = reader.definition(op.name)
    if op.name == "stablehlo.custom_call":
        effectful = str(attributes_of(op).get("has_side_effect", "false")) == "true"
        definition = registry.get("custom_call_effectful" if effectful else "custom_call")
    if definition is None:
        return None
    regions = _regions(reader, op)
    if op.name in REDUCTIONS:
        return _reduction(reader, op, operands, results, regions[0])
    attributes = reader.attributes(definition, op, operands, results)
    if op.name == "stablehlo.scatter" and (monoid := recognise_monoid(regions[0])) is not None:
        attributes, regions = attributes.updated(monoid=monoid), ()
    return [Part(definition, attributes, *whole, regions)]


def _reduction(reader: ModuleReader, op: Any, operands: Types, results: Types, body: Region) -> list[Part]:
    """One part per component where the body is a monoid in each; otherwise the general form."""
    name, count = op.name.removeprefix("stablehlo."), len(results)
    monoids = component_monoids(body)
    definition = registry.get(name if monoids else f"{name}_general")
    attributes = reader.attributes(definition, op, operands, results)
    if monoids is None:
        return [Part(definition, attributes, tuple(range(2 * count)), tuple(range(count)), (body,))]
    return [
        Part(definition, attributes.updated(monoid=monoid), (i,), (i,), (), (count + i,))
        for i, monoid in enumerate(monoids)
    ]


def _regions(reader: ModuleReader, op: Any) -> tuple[Region, ...]:
    """The op's regions, which may use constants from outside; EggshardError where they use anything else."""
    outside = RegionReader(reader, OP_READERS)
    for value in captures(op):
        literal = constant_of(value)
        if literal is not None:
            type_ = reader.type(value.type, "a constant")
            outside.env[value] = outside.add_constant(Attributes(value=literal), type_)
    return tuple(outside.subregion(region.blocks[0]) for region in op.regions)


def constant_of(value: Any) -> Literal | None:
    """What is known of a value that a constant defines."""
    op = maker(value, "stablehlo.constant", "sdy.constant")
    if op is None:
        return None
    try:
        found: Literal = ModuleReader().literal(literal_value(op))["value"]
    except EggshardError:
        return None
    return found


def starts_from_identity(value: Any, monoid: str) -> bool:
    """Whether a value is known to change nothing where a reduction starts from it."""
    found = constant_of(value)
    return found is not None and is_identity(Attributes(value=found), monoid)


def captures(op: Any) -> list[Any]:
    """The values from outside that an op's regions use."""
    return captured_values(op) if len(op.regions) else []
