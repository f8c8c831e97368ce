"""Readers of MLIR ops whose meaning is more than their name, attributes and operands."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.frontends.normalization.divergence import mark_divergence
from eggshard.frontends.stablehlo import enzyme_dialect, hlo_dialect
from eggshard.frontends.stablehlo.control_flow import read_branches, read_while
from eggshard.frontends.stablehlo.module_reader import captured_values
from eggshard.frontends.stablehlo.region_reader import Handler, OpReaders, RegionReader
from eggshard.frontends.stablehlo.shardings import gspmd_group
from eggshard.ops import registry
from eggshard.ops.opaque_factors import PLACEMENTS
from eggshard.ops.reductions.monoids import recognise_monoid
from eggshard.program import monoids
from eggshard.program.attributes import Attributes
from eggshard.program.codec import attribute_dictionary
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TOKEN, mlir_dtype

#: Monoids for which combining with the same value twice changes nothing.
_IDEMPOTENT = ("max", "min", "and", "or")
#: Custom calls that only keep XLA's propagation from crossing them.
_BARRIERS = ("ShardBarrierFrom", "ShardBarrierTo")


def _constant(reader: RegionReader, operation: Any, name: str) -> None:
    attributes = reader.module.literal(literal_value(operation))
    (type_,) = reader.result_types(operation)
    reader.bind(operation, [reader.add_constant(attributes, type_, operation)])


def literal_value(operation: Any) -> Any:
    """A constant's attribute, or its text where Python has no class for it (complex elements)."""
    try:
        return operation.attributes["value"]
    except TypeError:
        text: str = operation.get_asm(print_generic_op_form=True)
        start = text.index("dense<")
        return text[start : text.index("}>", start)]


def _call(reader: RegionReader, operation: Any, name: str) -> None:
    key = "decomposition" if name == "stablehlo.composite" else "callee"
    operands = reader.operands(operation)
    with reader.module.calling(ir.FlatSymbolRefAttr(operation.attributes[key]).value) as block:
        reader.bind(operation, reader.inline(block, operands))


def _named_computation(reader: RegionReader, operation: Any, name: str) -> None:
    block = operation.regions[0].blocks[0]
    reader.bind(operation, reader.inline(block, reader.operands(operation), isolated=False))


def _identity(reader: RegionReader, operation: Any, name: str) -> None:
    reader.bind(operation, reader.operands(operation))


def _unchanged(reader: RegionReader, operation: Any, name: str) -> None:
    """A reshape or broadcast to the same type is no op, which keeps constants visible through it."""
    operand, result = operation.operands[0], operation.results[0]
    attributes = operation.attributes
    if operand.type == result.type and "sdy.sharding" not in attributes:
        dims = list(ir.DenseI64ArrayAttr(attributes["broadcast_dimensions"])) if "broadcast" in name else []
        if dims == sorted(dims):
            return _identity(reader, operation, name)
    return reader.read_op(operation, name)


def _constraint(reader: RegionReader, operation: Any, name: str) -> None:
    """A stated sharding: a constraint, a reshard, or one of Shardy's collectives, which only change the sharding."""
    key = "sharding" if "sharding" in operation.attributes else "out_sharding"
    add_constraint(reader, operation, reader.module.meshes.sharding(str(operation.attributes[key])))


def add_constraint(reader: RegionReader, operation: Any, sharding: Sharding) -> None:
    """The op ``sharding_constraint`` for an MLIR op of one operand and one result."""
    types = reader.result_types(operation)
    reader.module.stated.append((sharding, types[0], f"a constraint{reader.module.place(operation)}"))
    operands = reader.operands(operation)
    if reader.types_of(operands) != types:
        raise ProgramError(f"a sharding constraint changes the type from {reader.types_of(operands)[0]} to {types[0]}")
    if not sharding.says_something:
        reader.bind(operation, operands)
        return
    reader.add(operation, "sharding_constraint", attributes=Attributes(sharding=sharding))


def _group(reader: RegionReader, operation: Any, name: str) -> None:
    operands = reader.operands(operation)
    group = Attributes(group_id=int(ir.IntegerAttr(operation.attributes["group_id"]).value))
    for value in operands:
        reader.append("sharding_group", (value,), (), group)
    reader.bind(operation, operands[: len(operation.results)])


def _manual_computation(reader: RegionReader, operation: Any, name: str) -> None:
    """A region in shard-local shapes (JAX's shard_map)."""
    attributes, meshes = operation.attributes, reader.module.meshes
    operands, results = reader.operands(operation), reader.result_types(operation)
    ins, outs = (meshes.per_value(str(attributes[key])) for key in ("in_shardings", "out_shardings"))
    for shardings, types in ((ins, reader.types_of(operands)), (outs, results)):
        for sharding, type_ in zip(shardings, types, strict=True):
            reader.module.stated.append((sharding, type_, f"a manual computation{reader.module.place(operation)}"))
    axes = tuple(re.findall(r'"([^"]*)"', str(attributes["manual_axes"])))
    values = Attributes(in_shardings=ins, out_shardings=outs, manual_axes=axes, result_types=results,
                        mesh=meshes.mesh or Mesh({}))
    body = (mark_divergence(values, reader.subregion(operation.regions[0].blocks[0])),)
    registry.get("manual_computation").infer(values, reader.types_of(operands), body)
    reader.add(operation, "manual_computation", body, values)


def _custom_call(reader: RegionReader, operation: Any, name: str) -> None:
    """Markers of shardings mean what they mark; other targets stay calls."""
    target = ir.StringAttr(operation.attributes["call_target_name"]).value
    if target == "Sharding":
        add_constraint(reader, operation, _marked_sharding(reader, operation))
        group = gspmd_group(str(attributes_of(operation).get("mhlo.sharding", "")))
        if group is not None:
            reader.append("sharding_group", (reader.value(operation.results[0]),), (), Attributes(group_id=group))
        return
    if target in ("SPMDFullToShardShape", "SPMDShardToFullShape"):
        raise ProgramError(f"custom_call @{target} is GSPMD's form of shard_map; lower with Shardy enabled in JAX")
    if target in _BARRIERS:
        return _identity(reader, operation, name)
    attributes = attributes_of(operation)
    called = attributes.get("called_computations")
    if called is not None and len(ir.ArrayAttr(called)):
        raise ProgramError(f"custom_call @{target} calls functions of the module, which is not supported; inline them")
    effectful = str(attributes.get("has_side_effect", "false")) == "true" and target not in PLACEMENTS
    reader.add(operation, "custom_call_effectful" if effectful else "custom_call")


def _marked_sharding(reader: RegionReader, operation: Any) -> Sharding:
    attributes, meshes = operation.attributes, reader.module.meshes
    if "sdy.sharding" in attributes:
        return meshes.per_value(str(attributes["sdy.sharding"]))[0]
    if "mhlo.sharding" not in attributes:
        raise ProgramError("custom_call @Sharding states no sharding; it needs sdy.sharding or mhlo.sharding")
    return meshes.gspmd(str(attributes["mhlo.sharding"]), reader.result_types(operation)[0].rank)


def _opaque(reader: RegionReader, operation: Any, name: str) -> None:
    """An op without a definition: kept with its text, its meaning unknown.

    ProgramError for an op of a dialect that JAX's MLIR has not registered: no module with it could be compiled.
    """
    if not operation.context.is_registered_operation(name):
        raise ProgramError(
            f"the op is of a dialect that is not registered here; lower {name.partition('.')[0]} to StableHLO first"
        )
    if captured_values(operation):
        raise ProgramError("its region uses values from outside, and eggshard does not know the op")
    operands, results = reader.operands(operation), reader.result_types(operation)
    items = [(k, str(a)) for k, a in attributes_of(operation).items() if k != "sdy.sharding"]
    regions = ""
    if len(operation.regions):
        text = operation.get_asm(print_generic_op_form=True)
        regions = text[text.index(" ({\n") + 1 : text.rindex("})") + 2]
    values = Attributes(
        mlir_name=name, attribute_text=attribute_dictionary(items), region_text=regions, result_types=results
    )
    tokens = any(t.dtype == TOKEN for t in (*reader.types_of(operands), *results))
    known_dialect = name.partition(".")[0] in ("stablehlo", "chlo", "mhlo")
    kind = "opaque_effectful" if tokens or not results or not known_dialect else "opaque"
    reader.add(operation, kind, attributes=values)


def component_monoids(body: Region) -> list[str] | None:
    """Per component the monoid by which a reduction's body combines it; None for any other body."""
    n = len(body.outputs)
    by_result = {op.results[0]: op for op in body.ops if len(op.results) == 1}
    out = []
    for i, value in enumerate(body.outputs):
        op = by_result.get(value)
        if op is None or op.name not in monoids.OF_OP or sorted(op.operands) != [i, n + i]:
            return None
        name = monoids.OF_OP[op.name]
        if name not in monoids.of_dtype(body.types[value].dtype):
            return None
        out.append(name)
    return out


def _reduce(reader: RegionReader, operation: Any, name: str) -> None:
    """One simple reduction per component where the body is a monoid in each; otherwise the general form."""
    operands, results = reader.operands(operation), reader.result_types(operation)
    (body,) = reader.regions(operation)
    names, n, simple = component_monoids(body), len(results), name.removeprefix("stablehlo.")
    inits = [reader.constant(v) for v in operands[n:]]
    attributes = None if names is None else reader.attributes(operation, simple, operands)
    if names is not None and attributes is not None and name.endswith("window"):
        padded = any(low or high for low, high in attributes["padding"]) or set(attributes["base_dilations"]) != {1}
        if padded and not all(m in _IDEMPOTENT or is_identity(i, m) for m, i in zip(names, inits, strict=True)):
            names = None
    if names is None or attributes is None:
        reader.add(operation, f"{simple}_general", (body,))
        return
    values = []
    for i, monoid in enumerate(names):
        own = attributes.updated(monoid=monoid)
        (value,) = reader.append(simple, operands[i : i + 1], results[i : i + 1], own, (), operation, i)
        if not is_identity(inits[i], monoid):
            value = combine(reader, monoid, value, operands[n + i], operation)
        values.append(value)
    reader.bind(operation, values)


def is_identity(constant: Attributes | None, monoid: str) -> bool:
    """Whether a constant is known, and changes nothing when it is combined with."""
    if constant is None:
        return False
    array = constant["value"].array
    identity = np.asarray(monoids.identity(monoid, mlir_dtype(array.dtype))).astype(array.dtype)
    return bool(np.all(array == identity))


def combine(reader: RegionReader, monoid: str, value: int, scalar: int, operation: Any) -> int:
    """The value combined, element by element, with a scalar."""
    type_ = reader.builder.types[value]
    if type_.rank:
        spread = Attributes(broadcast_dimensions=(), shape=type_.shape)
        (scalar,) = reader.append("broadcast_in_dim", (scalar,), (type_,), spread)
    return reader.append(monoids.monoid(monoid).op, (value, scalar), (type_,), Attributes(), (), operation)[0]


def _barrier(reader: RegionReader, operation: Any, name: str) -> None:
    """One barrier per value: what each value may not be rewritten across does not depend on the others."""
    operands, results = reader.operands(operation), reader.result_types(operation)
    reader.bind(operation, [
        reader.append("optimization_barrier", (v,), (t,), Attributes(), (), operation, i)[0]
        for i, (v, t) in enumerate(zip(operands, results, strict=True))
    ])


def _scatter(reader: RegionReader, operation: Any, name: str) -> None:
    """Named by its monoid where the body is one."""
    regions = reader.regions(operation)
    monoid = recognise_monoid(regions[0])
    if monoid is None:
        reader.add(operation, "scatter", regions)
    else:
        attributes = reader.attributes(operation, "scatter", reader.operands(operation))
        reader.add(operation, "scatter", (), attributes.updated(monoid=monoid))


_NAMED: dict[str, Handler] = {
    **enzyme_dialect.HANDLERS,
    **hlo_dialect.HANDLERS,
    "stablehlo.constant": _constant,
    "sdy.constant": _constant,
    "func.call": _call,
    "stablehlo.composite": _call,
    "sdy.named_computation": _named_computation,
    "sdy.propagation_barrier": _identity,
    "sdy.data_flow_edge": _identity,
    "sdy.func_data_flow_edge": _identity,
    "sdy.sharding_group": _group,
    "sdy.manual_computation": _manual_computation,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce,
    "stablehlo.scatter": _scatter,
    "stablehlo.reshape": _unchanged,
    "stablehlo.broadcast_in_dim": _unchanged,
    "stablehlo.optimization_barrier": _barrier,
    "stablehlo.while": read_while,
    "stablehlo.case": read_branches,
    "stablehlo.if": read_branches,
    **dict.fromkeys(
        [
            *("sdy.sharding_constraint", "sdy.reshard", "sdy.all_gather", "sdy.all_slice", "sdy.all_to_all"),
            *("sdy.collective_permute", "sdy.all_reduce", "sdy.reduce_scatter"),
            *("sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced"),
        ],
        _constraint,
    ),
}

#: How the ops of StableHLO, Shardy and Enzyme are read.
OP_READERS = OpReaders(_NAMED, _opaque)
